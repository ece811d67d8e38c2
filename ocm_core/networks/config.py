"""Read a network's configuration, and name every mistake in it.

A family has a frozen dataclass with this library's names. `read_config` fills it from a mapping;
`check_published` vets the constructor arguments of a published implementation before a family
translates them.
"""

from collections.abc import Collection, Mapping
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
Multiplier = Annotated[int, Field(gt=0, le=64)]
Side = Annotated[int, Field(gt=0, le=2**13)]
MOST_LEVELS = 12  # each halves the image
MOST_BLOCKS_PER_LEVEL = 16


class Small(NamedTuple):
    """A family's small configuration, for rehearsals: what differs from a published one."""

    side: int  # of the images or latents that it takes
    config: Mapping[str, Any]


@dataclass(frozen=True)
class DiffusersSizes:
    """The sizes that decide how long it takes to build a UNet or an autoencoder of diffusers."""

    block_out_channels: Annotated[list[Channels], Field(min_length=1, max_length=MOST_LEVELS)]
    layers_per_block: Annotated[int, Field(gt=0, le=MOST_BLOCKS_PER_LEVEL)] = 1


def check_diffusers_sizes(config: Mapping[str, Any], where: object) -> None:
    """Check the sizes before anything is built; missing keys have diffusers' small defaults."""
    given = {
        key: config[key] for key in ("block_out_channels", "layers_per_block") if key in config
    }
    try:
        TypeAdapter(DiffusersSizes).validate_python({"block_out_channels": [1], **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise OcmError(f"{where}: {key}: {first['msg']}") from None


def read_config(kind: type[AnyConfig], values: Mapping[str, Any], family: str) -> AnyConfig:
    """Validate the values as a configuration of the family."""
    valid = [field.name for field in fields(kind)]
    _refuse_unknown(values, valid, f"configuration key of {family}")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise OcmError(f"configuration of {family}: {key}: {first['msg']}") from None


def check_published(
    arguments: Mapping[str, Any],
    needed: Collection[str],
    fixed: Mapping[str, Any],
    family: str,
    optional: Collection[str] = (),
) -> None:
    """Check constructor arguments; those in `fixed` may be absent, or have that value only."""
    known = {*needed, *fixed, *optional}
    _refuse_unknown(arguments, known, f"constructor argument of {family}")
    for name in needed:
        if name not in arguments:
            raise OcmError(f"constructor arguments of {family}: {name!r} is missing; add it")
    for name, only in fixed.items():
        if arguments.get(name, only) != only:
            raise OcmError(
                f"constructor arguments of {family}: {name}={arguments[name]!r}; only {only!r},"
                " which every published network uses, is implemented"
            )


def _refuse_unknown(values: Mapping[str, Any], valid: Collection[str], what: str) -> None:
    for name in values:
        if name not in valid:
            raise OcmError(f"{what}: {unknown(name, valid)}")


def check_multiple(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Refuse a size that is not a multiple of another."""
    if value % divisor:
        raise OcmError(
            f"{name}={value} is not a multiple of {divisor_name}={divisor}; change either"
        )


def refuse_sizes(kind: str, sizes: Mapping[str, int]) -> None:
    """Refuse sizes for a head that takes its own from the network."""
    if sizes:
        raise OcmError(
            f"head kind {kind!r} takes its size from the network; leave out {', '.join(sizes)}"
        )


def published_variance(arguments: Mapping[str, Any], name: str, family: str) -> bool:
    """Return whether the published output has an interpolation value after the noise."""
    inputs, outputs = arguments["in_channels"], arguments[name]
    if outputs not in (inputs, 2 * inputs):
        raise OcmError(
            f"constructor arguments of {family}: {name}={outputs}; expected in_channels={inputs}"
            f" or {2 * inputs}, with learned variance"
        )
    return bool(outputs == 2 * inputs)
