"""Results beside the paper's: which rows meet, what agrees, and what is left blank."""

from pathlib import Path
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.report.paper import Compared, compare, printed, published, section
from ocm_core.results.study import Study
from ocm_core.results.table import Row
from tests.results.synthetic import PARAMS, bounds, near, seeds, study


def named(name: str, rows: list[Row], paper: str | None = None) -> Study:
    report: dict[str, Any] = {**PARAMS["report"], "paper": paper}
    return study(rows, PARAMS | {"name": name, "report": report})


def compared(found: Study) -> dict[tuple[str, str, int], Compared]:
    rows = compare(found, published(found))
    return {(one.key, one.method, one.nfe): one for one in rows}


def test_an_experiment_has_its_rows_and_of_another_network_only_likelihoods() -> None:
    assert len(published(named("celeba64", []))) == 66 + 36 + 18
    assert published(named("celeba64_smoke", [])) == []
    found = named("cifar10_small", bounds({("beta", 10): 7.0, ("ocm", 10): 6.0}), "cifar10_ls")
    rows = published(found)
    assert {row.place[0] for row in rows} == {"nll_bpd"} and len(rows) == 36
    one = compared(found)["bits_per_dim", "beta", 10]
    assert one.paper and one.difference == float(f"{7.0 - one.paper.value:.2g}")
    assert one.agrees is None
    said = section(found, [*compared(found).values()]).blocks[0]
    assert isinstance(said, str) and "of the network of cifar10_ls" in said
    with pytest.raises(OcmError, match=r"report.paper: .*results.csv has no experiment 'cifar100'"):
        published(named("cifar10_small", [], "cifar100"))


def test_distances_compare_only_in_the_features_of_inception() -> None:
    values = {("ddpm", "beta_tilde", 10): near(34.76), ("ddpm", "ocm_relative", 10): near(1)}
    same = compared(named("cifar10_cs", seeds("fid", values)))
    assert [*same] == [("fid", "beta_tilde", 10)]  # the paper has no relative heads
    assert same["fid", "beta_tilde", 10].difference == pytest.approx(0, abs=1e-9)
    assert compared(named("cifar10_cs", seeds("frechet", values))) == {}


def test_recall_is_in_percent_there_and_a_share_in_tables(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    file.write_text(
        "table,experiment,sampler,method,steps,cfg,probes,metric,value,std,note\n"
        "main,made_up,ddpm,ocm,5,,,recall_percent,80.0,,\n"
        "seeds,made_up,ddpm,ocm,5,,,recall_percent,80.5,0.5,\n"
    )
    place = {("ddpm", "ocm", 5): [0.8, 0.81, 0.82]}
    found = study([*seeds("recall", place), *seeds("fid", place)])
    [one] = compare(found, published(found, file))
    assert one.ours.mean == pytest.approx(81) and one.agrees
    [(_, values)] = printed([one], "recall").items()
    assert values == {"ocm": {5: 0.8}}
    far = study([*seeds("recall", {("ddpm", "ocm", 5): near(0.9)}), *seeds("fid", place)])
    assert not compare(far, published(far, file))[0].agrees
    file.write_text("table,experiment\n")
    with pytest.raises(OcmError, match=r"results\.csv: has the columns table, experiment"):
        published(study([]), file)
    assert published(study([]), tmp_path / "nowhere/results.csv") == []
