"""Everything in the repository that is generated from parameters, and whether it is up to date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from ocm_core.errors import OcmError, unknown
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.params.document import validate
from ocm_core.params.resolved import (
    ACTIVE,
    RESOLVED,
    active_names,
    edits,
    experiment_names,
    load,
    overlay,
    resolved_file,
)
from ocm_core.params.stamps import digests, edited, made_from
from ocm_core.pipeline.composed import composed
from ocm_core.pipeline.dvc_yaml import DVC_FILE, SOURCES, dvc_text, sources_text
from ocm_core.project import is_checkout


def generated() -> dict[Path, str]:
    """The text of each generated file, by its path."""
    listed_by = digests([ACTIVE])
    active, texts = active_names(), composed(experiment_names())
    for name in active:
        if name not in texts:
            raise OcmError(f"{ACTIVE}: experiment {unknown(name, texts)}")
    others = [name for name in texts if name not in active]
    composed_from = sorted({file for name in active for file in made_from(texts[name])})
    stages_of = [validate(yaml.safe_load(texts[name]), resolved_file(name)) for name in active]
    return {
        **{resolved_file(name): text for name, text in texts.items()},
        DVC_FILE: dvc_text(stages_of, others, listed_by, composed_from),
        **({} if is_checkout() else {SOURCES: sources_text(stages_of)}),
    }


def orphans(expected: dict[Path, str]) -> list[Path]:
    """Resolved files of experiments that are no more."""
    return sorted(set(RESOLVED.glob("*.yaml")) - expected.keys())


def write() -> list[Path]:
    """Bring every generated file up to date; returns those that changed."""
    return _replace(generated())


def write_resolved() -> list[Path]:
    """Bring the resolved files up to date while DVC is at work, which has read dvc.yaml already."""
    _look_for_edits()
    expected = generated()
    if DVC_FILE in outdated(expected):
        raise OcmError(
            f"{DVC_FILE}: must change with params/; run `ocm params --write`, then `dvc repro`"
        )
    return _replace(expected)


def write_if_edited() -> list[Path]:
    """`write`, but only after an edit in `params/`, which is seen without composing anything."""
    return write() if _look_for_edits() else []


def set_parameters(name: str, assignments: Sequence[str]) -> list[Path]:
    """Write `key=value`s into an overlay, and what follows from them; everything or nothing."""
    from ocm_core.params.assign import assigned  # takes Hydra and torch

    file = overlay(name)
    with alone_in(file.parent):  # nothing that another process sets meanwhile is lost
        text = assigned(name, assignments)
        before = file.read_text()
        write_text(file, text)
        try:
            return [file, *write()]
        except BaseException:
            write_text(file, before)
            raise


def outdated(expected: dict[Path, str]) -> list[Path]:
    differing = [file for file, text in expected.items() if not _holds(file, text)]
    return [*differing, *orphans(expected)]


def _holds(file: Path, text: str) -> bool:
    """By bytes: what is there may be no text at all."""
    return file.exists() and file.read_bytes() == text.encode()


def _replace(expected: dict[Path, str]) -> list[Path]:
    RESOLVED.mkdir(exist_ok=True)
    with alone_in(RESOLVED):
        changed = outdated(expected)
        for file in changed:
            if file in expected:
                write_text(file, expected[file])
            else:
                file.unlink()
    return changed


def _look_for_edits() -> list[Path]:
    """The files of `params/` that were edited; an edited generated file is refused."""
    if DVC_FILE in (files := edited(DVC_FILE)):
        raise OcmError(
            f"{DVC_FILE}: edited or gone, but it is generated; `ocm params --write` makes it anew"
        )
    names = {*experiment_names(), *(file.stem for file in RESOLVED.glob("*.yaml"))}
    found = [*files, *(file for name in sorted(names) for file in edits(name))]
    return found if found or is_checkout() else _other_package()


def _other_package() -> list[Path]:
    """Where the package has been exchanged since: the record of its code."""
    text = sources_text([load(name) for name in active_names()])
    return [] if _holds(SOURCES, text) else [SOURCES]
