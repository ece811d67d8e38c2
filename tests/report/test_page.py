"""A page is a function of its folder, and shows whatever the table of results has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.report.document import Headline
from ocm_core.report.folder import ReportFolder, read_folder, report_names
from ocm_core.report.index import index, site
from ocm_core.report.page import page
from ocm_core.report.render import render
from ocm_core.results.measures import Measure, measures
from ocm_core.results.table import Row
from tests.report import markup
from tests.report.made_up import (
    ROOT,
    figures,
    image_folder,
    plane_folder,
    sections,
    tables,
)
from tests.results.synthetic import image_rows, near, seeds


def test_a_page_of_images_has_a_figure_for_everything(tmp_path: Path) -> None:
    shown = page(image_folder(tmp_path / "digits"))
    assert {*figures(shown)} == {
        *("sheet", "frontier", "frechet-differences", "frechet-by-nfe", "other-measures", "nll"),
        *("chosen-timesteps", "posterior-std", "training-curves"),
    }
    assert sections(shown) == [
        *("claims", "quality", "likelihood", "deviations", "methods", "training"),
        *("glossary", "provenance"),
    ]
    assert {"headline", "frechet_by_nfe", "bits_per_dim_by_nfe", "clamped"} <= {*tables(shown)}
    assert [type(block) for block in shown.glance][-1] is Headline


def test_a_page_of_points_is_the_same_page_with_other_measures(tmp_path: Path) -> None:
    shown = page(plane_folder(tmp_path / "toy"))
    assert {"sheet", "frontier", "mmd-by-nfe", "samples", "covariance-error"} <= {*figures(shown)}
    assert "measure-covariance-error" in sections(shown)
    assert "fresh data" in (figures(shown)["frontier"].legend or {})
    assert len(figures(shown)["covariance-error"].panes) == 2  # one for each score


def test_the_same_folder_makes_the_same_bytes(tmp_path: Path) -> None:
    one, other = (image_folder(tmp_path / name / "digits") for name in "ab")
    assert render(page(one)) == render(page(other))
    for file in one.path.rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (other.path / file.relative_to(one.path)).read_bytes()


@pytest.mark.parametrize("make", [image_folder, plane_folder])
def test_a_page_opens_offline_and_can_be_read_aloud(
    tmp_path: Path, make: Callable[[Path], ReportFolder]
) -> None:
    own = markup.without_plotly(render(page(make(tmp_path / "made_up"))))
    markup.assert_nothing_is_loaded(own)
    markup.assert_ids_are_unique(own)
    found = markup.figures(own)
    assert len(found) > 5
    for figure in found.values():
        markup.assert_figure_is_accessible(figure)


def test_a_new_measure_appears_without_an_edit_of_the_page(tmp_path: Path) -> None:
    """On the page, in the index and in the metrics; `ocm compare` takes any measure."""
    values = {("ddpm", m, k): near(v) for m, v in {"ocm": 2, "beta": 1}.items() for k in (5, 10)}
    per_image = [Row("sharpness", 1.0, 0.1, "trained", "", m, "even", 5) for m in ("ocm", "beta")]
    folder = image_folder(
        tmp_path / "reports/digits", [*image_rows(), *seeds("novelty", values), *per_image]
    )
    declared = measures([Measure("novelty", "novelty of samples", "higher")])
    shown = page(folder, declared)
    assert "novelty_by_nfe" in tables(shown)
    assert "novelty of samples" in figures(shown)["other-measures"].label
    assert '"novelty"' in (folder.path / "metrics.json").read_text()
    assert "novelty of samples, DDPM" in index(tmp_path, declared)
    unknown = page(folder)  # nobody declared it
    assert "measure-novelty" in sections(unknown)
    assert {"novelty", "sharpness"} <= {*figures(unknown)}


def test_an_extra_feature_space_has_a_section_of_its_own(tmp_path: Path) -> None:
    rows = [row._replace(measure="frechet.inception") for row in image_rows()[:12]]
    shown = page(image_folder(tmp_path / "digits", [*image_rows(), *rows]))
    [section] = [s for s in shown.sections if s.id == "quality-inception"]
    assert section.title == "And in the features of Inception v3?"


def test_an_experiment_with_nothing_but_a_bound_has_a_page(tmp_path: Path) -> None:
    rows = [row for row in image_rows() if row.measure == "bits_per_dim"]
    shown = page(image_folder(tmp_path / "digits", rows))
    assert "quality" not in sections(shown) and "likelihood" in sections(shown)
    assert render(shown)


def test_diverged_and_single_values_can_be_drawn(tmp_path: Path) -> None:
    rows = seeds(
        "frechet",
        {("ddpm", "ocm", 5): [float("nan")], ("ddpm", "beta", 5): [3.0], ("ddpm", "beta", 10): [3]},
    )
    html = render(page(image_folder(tmp_path / "digits", rows)))
    assert "NaN" not in html.split("<script>")[0]


def test_pairs_of_timesteps_are_counted(tmp_path: Path) -> None:
    caption = figures(page(image_folder(tmp_path / "digits")))["nll"].caption
    assert "in pairs: of 1 bounds 1 are lower, 0 higher by less" in caption
    assert "of 36 test images" in caption


def test_guidance_has_a_figure_where_three_scales_were_sampled(tmp_path: Path) -> None:
    rows = [
        row
        for scale in (1.5, 2.0, 3.0)
        for row in seeds(
            "frechet",
            {("ddpm", "ocm", 10): near(scale), ("ddpm", "beta", 10): near(2 * scale)},
            guidance=scale,
        )
    ]
    shown = figures(page(image_folder(tmp_path / "latent", rows)))
    assert [pane.title for pane in shown["guidance"].panes] == ["DDPM, nfe 10"]
    assert shown["frontier"].choices == ["1.5", "2", "3"]


ATTACK = "'\"></script><script>window.pwned = 1</script><b id=injected>{{ 7 * 7 }}"


def test_text_from_parameters_is_escaped(tmp_path: Path) -> None:
    report = {"title": ATTACK, "summary": ATTACK, "paper": None}
    folder = image_folder(tmp_path / "reports/digits", report=report)
    for html in (render(page(folder)), index(tmp_path)):
        assert "<b id=injected>" not in html and "49" not in html.partition("<h1>")[2][:200]


def test_the_commands_write_pages_and_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image_folder(tmp_path / "reports/digits")
    plane_folder(tmp_path / "reports/toy_smoke")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "digits"]) == 0
    assert main(["index"]) == 0
    shown = (tmp_path / "reports/index.html").read_text()
    assert '<a href="digits.html">Made up</a>' in shown
    assert "<code>ocm report toy_smoke</code> makes its page" in shown
    assert "Smoke tests" in shown and "best of this work" in shown
    assert "Results of commit 0123456." in shown
    capsys.readouterr()
    assert main(["report", "digit"]) == 1
    assert "present: digits, toy_smoke" in capsys.readouterr().err


def test_a_site_has_one_copy_of_plotly(tmp_path: Path) -> None:
    image_folder(tmp_path / "reports/digits")
    files = site(tmp_path, home="../index.html")
    assert {*files} == {
        *("reports/index.html", "reports/digits.html", "reports/plotly.min.js"),
    }
    assert '<script src="plotly.min.js">' in files["reports/digits.html"]
    assert '<a href="digits.html">' in files["reports/index.html"]


@pytest.mark.parametrize("name", report_names(ROOT))
def test_every_committed_folder_makes_a_page(name: str) -> None:
    folder = read_folder(name, ROOT)
    shown = page(folder)
    assert {"frontier", "training-curves"} <= {*figures(shown)}
    assert render(shown, bundle="plotly.min.js")
    assert sum(f.stat().st_size for f in (folder.path / "pictures").glob("*")) <= 300_000
    assert folder.provenance["commit"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("params.yaml", "- 1\n"),
        ("provenance.json", "[]"),
        ("curves.csv", "training\nx\n"),
        ("timesteps.json", '{"ocm": {"five": [1]}}'),
        ("pictures/pictures.json", '{"rows": [{}]}'),
        ("pictures/samples-0.webp", "no picture"),
        ("results.csv", "no table"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: str) -> None:
    folder = image_folder(tmp_path / "digits")
    (folder.path / file).write_text(content)
    with pytest.raises(OcmError, match=Path(file).name.replace(".", r"\.")):
        page(type(folder)(folder.path))
