"""Read a network's configuration, a dataclass of its family, and name every mistake in it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from ocm_core.errors import OcmError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AnyConfig = TypeVar("AnyConfig", bound="DataclassInstance")

Probability = Annotated[float, Field(ge=0, lt=1)]
# Published networks have up to 1152 channels, 28 blocks and 6 levels. Without bounds a slip of the
# keyboard builds for minutes, or fills the memory, before anything can be compared with it.
Channels = Annotated[int, Field(gt=0, le=2**14)]
Blocks = Annotated[int, Field(gt=0, le=256)]  # one after another
BlocksOfLevels = tuple[Annotated[int, Field(ge=0, le=16)], ...]
Multiplier = Annotated[int, Field(gt=0, le=64)]
Side = Annotated[int, Field(gt=0, le=2**13)]
Classes = Annotated[int, Field(gt=0, le=10**6)]
BlocksPerLevel = Annotated[int, Field(gt=0, le=16)]
Levels = Field(min_length=1, max_length=12)  # each halves the image


class Small(NamedTuple):
    """A family's small configuration, for rehearsals: what differs from a published one."""

    side: int  # of the images or latents that it takes
    config: Mapping[str, Any]


@dataclass(frozen=True)
class DiffusersSizes:
    """The sizes of a model or an autoencoder of diffusers, to be checked before it is built."""

    block_out_channels: Annotated[tuple[Channels, ...], Levels] = (1,)
    layers_per_block: BlocksPerLevel = 1
    in_channels: Channels = 3
    out_channels: Channels | None = None
    sample_size: Side | tuple[Side, Side] | None = None
    num_layers: Blocks = 1
    num_single_layers: Blocks = 1
    encoder_block_out_channels: Annotated[tuple[Channels, ...], Levels] = (1,)
    decoder_block_out_channels: Annotated[tuple[Channels, ...], Levels] = (1,)
    encoder_layers_per_block: BlocksOfLevels = ()
    decoder_layers_per_block: BlocksOfLevels = ()

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Channels, rows and columns; None where any size fits."""
        size = self.sample_size
        sides = (size, size) if isinstance(size, int) else size
        return sides and (self.in_channels, *sides)


def read_config(kind: type[AnyConfig], values: Mapping[str, Any], family: str) -> AnyConfig:
    """Validate the values as a configuration of the family."""
    valid = [field.name for field in fields(kind)]
    for name in values:
        if name not in valid:
            raise OcmError(f"configuration key of {family}: {unknown(name, valid)}")
    return read_known(kind, values, f"configuration of {family}")


def read_known(kind: type[AnyConfig], values: Mapping[str, Any], where: object) -> AnyConfig:
    """Validate those of the values that the dataclass has fields for."""
    names = {field.name for field in fields(kind)}
    try:
        given = {key: value for key, value in values.items() if key in names}
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise OcmError(f"{where}: {key}: {first['msg']}") from None


def check_multiple(name: str, value: int, by: str, divisor: int) -> None:
    """Refuse a size that is not a multiple of another."""
    if value % divisor:
        raise OcmError(f"{name}={value} is not a multiple of {by}={divisor}; change either")
