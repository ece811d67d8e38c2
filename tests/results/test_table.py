"""The table of results: selections, exact round trips, errors, and the metrics that follow."""

from math import isnan, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

from ocm_core.errors import OcmError
from ocm_core.results.measures import Measure, measures
from ocm_core.results.replicates import Comparison, difference, nested, replicates
from ocm_core.results.table import COLUMNS, Results, Row


def seeds(method: str, values: list[float], measure: str = "frechet", nfe: int = 5) -> list[Row]:
    return [
        Row(measure, v, sampler="ddpm", method=method, nfe=nfe, guidance=1.0, replicate=f"seed{i}")
        for i, v in enumerate(values)
    ]


def test_round_trip_is_exact(tmp_path: Path) -> None:
    rows = [*seeds("ocm", [0.1, 1 / 3, nan]), Row("loss", 1e-17, error=0.25, score="trained")]
    Results(rows).write(tmp_path / "results.csv")
    again = Results.read(tmp_path / "results.csv")
    assert again.text() == Results(rows).text()
    assert again[1].value == 1 / 3 and isnan(again[2].value) and again[3].nfe is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected score,sampler"),
        ("a,b\n", "has the columns a,b"),
        (",".join(COLUMNS) + "\nlearned,ddpm\n", "line 2"),
        (",".join(COLUMNS) + "\n,,,,,,,loss,much,\n", "line 2"),
        (",".join(COLUMNS) + "\n,,,,five,,,loss,1.0,\n", "line 2"),
    ],
)
def test_damage_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "results.csv").write_text(text)
    with pytest.raises(OcmError, match=says):
        Results.read(tmp_path / "results.csv")


def test_selection() -> None:
    table = Results([*seeds("ocm", [1.0, 2.0]), *seeds("beta", [3.0], nfe=10)])
    assert table.distinct("method") == ["ocm", "beta"]
    assert table.distinct("nfe") == [5, 10]
    assert len(table.select(method=("ocm", "beta"), replicate="seed0")) == 2
    assert [row.value for row in table.select(method="beta")] == [3.0]


def test_seeds_give_a_mean_and_pairs_cancel_noise() -> None:
    one, other = (replicates(seeds("", v)) for v in ([1.0, 2.0, 3.0], [1.5, 2.5, 3.5]))
    assert one.estimate.mean == 2.0
    assert one.estimate.error == pytest.approx(1 / sqrt(3))
    assert difference(one, other) == (-0.5, 0.0)


def test_a_jackknife_and_a_mean_over_images_have_their_error() -> None:
    left_out = [1.0, 1.2, 0.9, 1.4]
    rows = [Row("frechet", v, replicate=f"seed0/without{i}") for i, v in enumerate(left_out)]
    estimate = replicates([*seeds("", [1.1]), *rows]).estimate
    deviations = np.array(left_out) - np.mean(left_out)
    assert estimate.mean == pytest.approx(1.1)
    assert estimate.error == pytest.approx(sqrt(3 / 4 * (deviations**2).sum()))
    one, other = (replicates([Row("loss", v, error=e)]) for v, e in ((2.0, 0.3), (1.0, 0.4)))
    assert difference(one, other) == (1.0, 0.5)
    assert not replicates([Row("loss", 1.0)]).estimate.has_error


def test_best_ignores_what_diverged() -> None:
    entries = {m: replicates(seeds(m, v)) for m, v in {"a": [nan, 1.0], "b": [3.0, 4.0]}.items()}
    at = Comparison("nfe 5", entries | {"c": replicates(seeds("c", [3.2, 3.9]))})
    assert at.best() == "b"
    assert at.ties() == ["c"]
    assert Comparison("", at.entries, higher=True).ranked() == ["c", "b"]


def test_metrics_are_nested_means() -> None:
    rows = [*seeds("ocm", [1.0, 2.0]), *seeds("beta", [nan, 2.0])]
    rows += [Row("bits_per_dim", 3.1234567, 0.1, timesteps="even", method="ocm", nfe=10)]
    rows += [Row("covariance_error", 0.5, 0.1, timesteps="20", method="ocm")]
    found = nested(Results(rows))
    assert found["frechet"] == {"ddpm": {"ocm": {"K5": 1.5}}}
    assert found["frechet_std"] == {"ddpm": {"ocm": {"K5": 0.707107}}}
    assert found["bits_per_dim"] == {"even": {"ocm": {"K10": 3.12346}}}
    assert found["bits_per_dim_se"] == {"even": {"ocm": {"K10": 0.1}}}
    assert found["covariance_error"] == {"ocm": {"t20": 0.5}}

    # guidance and scores have a level where there are several
    rows = [
        Row("mmd", 1.0, score=score, sampler="ddpm", method="ocm", nfe=5, guidance=g)
        for score in ("exact", "trained")
        for g in (1.0, 1.5)
    ]
    assert nested(Results(rows))["mmd_exact_score"]["ddpm"]["ocm"]["K5"] == {"cfg1": 1, "cfg1.5": 1}


def test_registry_knows_spaces_and_what_is_added() -> None:
    known = measures([Measure("sharpness", "sharpness", "higher")])
    assert known["frechet.classifier"].log
    assert "a classifier trained on these data" in known["frechet.classifier"].name
    assert known["sharpness"].higher
    assert known["new_thing"].name == "new thing"
    keys = [m.key for m in known.ordered(["other", "recall", "frechet.x", "sharpness", "frechet"])]
    assert keys == ["frechet", "recall", "sharpness", "frechet.x", "other"]
