"""The roofline model: hours on a GPU from operations and bytes, by the GPU's data sheet.

time = max(Σ operations / (peak · utilisation), bytes / (bandwidth · its utilisation))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ocm_core.errors import OcmError
from ocm_core.planning.operation_counts import OperationCount

GpuPrecision = Literal["float32", "tf32", "bfloat16"]
PRECISIONS: tuple[GpuPrecision, ...] = ("float32", "tf32", "bfloat16")


@dataclass(frozen=True)
class Gpu:
    """Peaks of dense arithmetic in FLOP/s, memory in bytes, its bandwidth in bytes per second."""

    name: str
    float32: float
    tf32: float
    bfloat16: float
    float64: float
    bandwidth: float
    memory: float


# NVIDIA's data sheets of the A100 (SXM) and of the H100 (SXM), without sparsity
GPUS = (
    Gpu("A100 40 GB", 19.5e12, 156e12, 312e12, 9.7e12, 1.555e12, 40e9),
    Gpu("A100 80 GB", 19.5e12, 156e12, 312e12, 9.7e12, 2.039e12, 80e9),
    Gpu("H100", 67e12, 495e12, 989e12, 34e12, 3.35e12, 80e9),
)
A100, H100 = GPUS[1:]


def gpu_named(name: str) -> Gpu:
    """As in `A100-80GB`: the name without its spaces, or with any signs between its words."""
    known = {_letters(gpu.name): gpu for gpu in GPUS}
    if _letters(name) not in known:
        expected = ", ".join(gpu.name.replace(" ", "-") for gpu in GPUS)
        raise OcmError(f"gpu_model: no data sheet of {name!r} is known; expected one of {expected}")
    return known[_letters(name)]


def _letters(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


@dataclass(frozen=True)
class Utilisation:
    """The shares of the peak and of the bandwidth that are reached: assumptions."""

    peak: float = 0.35
    bandwidth: float = 0.70


@dataclass(frozen=True)
class RooflineTime:
    """Seconds of arithmetic, and of memory traffic without and with fused operations."""

    arithmetic: float
    traffic: float
    least_traffic: float

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.traffic)

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def bottleneck(self) -> str:
        if self.traffic <= self.arithmetic:
            return "arithmetic"
        return "memory" if self.least_traffic > self.arithmetic else "memory, unless fused"


def roofline_time(
    count: OperationCount, gpu: Gpu, precision: GpuPrecision, use: Utilisation
) -> RooflineTime:
    """`float32` is PyTorch's default: TF32 in convolutions, full float32 in matrix products."""
    products = getattr(gpu, precision)
    convolutions = gpu.tf32 if precision == "float32" else products
    arithmetic = (count.convolutions / convolutions + count.products / products) / use.peak
    size = 0.5 if precision == "bfloat16" else 1.0
    rate = gpu.bandwidth * use.bandwidth
    return RooflineTime(arithmetic, size * count.bytes / rate, size * count.least_bytes / rate)
