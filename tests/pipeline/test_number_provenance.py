"""Numbers are old once something that decides them has changed, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose, experiment_names
from ocm_core.params.document import read_yaml
from ocm_core.params.resolved import load, resolved_file
from ocm_core.pipeline import number_provenance
from ocm_core.pipeline.number_provenance import NumberProvenance

METRICS = '{"fid": 1.5}'


def made(*overrides: str) -> NumberProvenance:
    return NumberProvenance.of(compose("digits", list(overrides)), METRICS)


def tree(name: str = "digits") -> Mapping[str, Any]:
    """As a commit has them: the resolved file, unchecked."""
    return read_yaml(resolved_file(name))


@pytest.mark.parametrize("name", experiment_names())
def test_the_present_parameters_and_sources_make_current_numbers(name: str) -> None:
    found = NumberProvenance.of(load(name), METRICS)
    assert list(found.differences(tree(name), METRICS)) == []
    assert not found.has_other_sources(load(name))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.heads.learning_rate=0.125", ["made with other train.heads"]),
        ("methods.rademacher_1.probes=2", ["made with other methods.rademacher_1"]),
        ("sample.seeds=[7]", ["made with other sample"]),
        ("report.title=Another", []),
        ("evaluate.cost.repeats=2", []),
        ("evaluate.deviation.images=2", []),
    ],
)
def test_what_decides_the_numbers_makes_them_old(override: str, said: list[str]) -> None:
    assert list(made(override).differences(tree(), METRICS)) == said


def test_a_method_that_is_gone_makes_them_old() -> None:
    parameters = {**tree(), "methods": {"beta": tree()["methods"]["beta"]}}
    (said,) = made().differences(parameters, METRICS)
    assert "methods.ocm" in said and "methods.beta," not in said


def test_an_edited_metrics_file_is_noticed() -> None:
    assert list(made().differences(tree(), METRICS + " ")) == ["changed since they were made"]


def test_other_sources_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made()
    monkeypatch.setattr(number_provenance, "_SUMMARY", "ocm_core.networks.dit")
    assert found.has_other_sources(load("digits"))


def test_the_layout_of_the_page_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: set[str] = set()
    digest = number_provenance.digest

    def listening(files: list[Any]) -> str:
        counted.update(map(str, files))
        return digest(files)

    monkeypatch.setattr(number_provenance, "digest", listening)
    made()
    assert {"ocm_core/report/metrics.py", "ocm_core/metrics/frechet.py"} <= counted
    assert "ocm_core/training/loop.py" in counted
    assert not [name for name in counted if "report/page" in name or "stages/report" in name]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"metrics": 3, "parameters": {}, "sources": ""}', '{"metrics": ""}']
)
def test_a_broken_file_is_named(text: str) -> None:
    with pytest.raises(OcmError, match=r"x\.provenance\.json: .*run the experiment again"):
        NumberProvenance.parse(text, "x.provenance.json")


def test_it_is_read_as_it_was_written() -> None:
    assert NumberProvenance.parse(made().text, "x") == made()
