"""The likelihood of some batches by two processes against one, as the stage shares them.

Each process is timed by its CPU, so that other work on the machine does not count: the slower one
of the two against the one alone. Started as a module, this is one of those processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import torch

from benchmarks.interface import Benchmark, Measured
from benchmarks.networks import small_denoiser
from ocm_core import covariance
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.distributed import current_rank, joined
from ocm_core.likelihood.bound import Likelihood
from ocm_core.rng.noise import NoiseFor, SampleNoise

BATCHES, BATCH, STEPS, REPEATS = 8, 32, 25, 3
SHAPE = (1, 8, 8)


def compute(rows: range) -> None:
    methods = {kind: covariance.build(kind) for kind in ("beta", "beta_tilde")}
    x0 = torch.zeros(len(rows), *SHAPE)
    Likelihood(small_denoiser(), methods, Decoder(17)).bounds(
        {"K": rules.even(1000, STEPS)},
        x0,
        lambda t: SampleNoise(0, rows, SHAPE, "cpu", NoiseFor.LIKELIHOOD, t, draws=1),
    )


def worker() -> None:
    """This process's share; the first one prints the CPU seconds of all."""
    torch.set_num_threads(1)
    with joined(int(os.environ["LOCAL_RANK"])):
        rank = current_rank()
        compute(range(2))
        batches = [range(i * BATCH, (i + 1) * BATCH) for i in range(BATCHES)]
        rank.wait()
        start, clock = time.process_time(), time.perf_counter()
        for rows in rank.mine(batches):
            compute(rows)
        mine = torch.zeros(rank.world_size, dtype=torch.float64)
        mine[rank.index] = time.process_time() - start
        rank.total([mine])
        if rank.is_first:
            print(json.dumps({"cpu": mine.tolist(), "wall": time.perf_counter() - clock}))


def _run(processes: int) -> dict[str, list[float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    together = ["torch.distributed.run", f"--nproc-per-node={processes}"]
    address = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    done = subprocess.run(
        [sys.executable, "-m", *together, *address, "-m", "benchmarks.shared_likelihood"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure() -> Measured:
    pairs = [(_run(2), _run(1)) for _ in range(REPEATS)]
    ratios = sorted(max(two["cpu"]) / max(one["cpu"]) for two, one in pairs)
    return Measured(
        ratios[len(ratios) // 2],
        ratios[0],
        ratios[-1],
        {
            "batches": BATCHES,
            "repeats": REPEATS,
            "seconds_of_two": [two["cpu"] for two, _ in pairs],
            "seconds_of_one": [one["cpu"] for _, one in pairs],
            "wall_seconds_of_two": [two["wall"] for two, _ in pairs],
            "wall_seconds_of_one": [one["wall"] for _, one in pairs],
        },
    )


BENCHMARKS = [
    Benchmark(
        name="likelihood_shared",
        what="the likelihood shared by two processes, the slower one's CPU time",
        baseline="the same batches by one process",
        target=0.6,
        measure=_measure,
    )
]

if __name__ == "__main__":
    worker()
