"""A page is a function of its folder, which a run leaves for people: small and exact."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from ocm_core.cli import main
from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.report import folder as files
from ocm_core.report.document import Figure, Headline, Page
from ocm_core.report.folder import ReportFolder, read_folder, report_names
from ocm_core.report.page import index, page, site
from ocm_core.report.render import render
from ocm_core.results.measures import USES, Measure, measures
from ocm_core.results.study import Study
from ocm_core.results.table import Results, Row
from ocm_core.stages import restoration
from tests.report import made_up
from tests.report.made_up import PROVENANCE, ROOT, figures, image_folder, plane_folder, tables
from tests.results.synthetic import PARAMS, image_rows, near, seeds


def sections(page: Page) -> list[str]:
    return [section.id for section in page.sections]


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
    assert isinstance(shown.glance[-1], Headline)
    caption = figures(shown)["nll"].caption
    assert "in pairs: of 1 bounds 1 are lower, 0 higher by less" in caption
    assert "of 36 test images" in caption
    assert render(shown).count(get_plotlyjs()) == 1
    again = image_folder(tmp_path / "again/digits").path  # the same bytes
    assert render(page(ReportFolder(again))) == render(shown)
    for file in again.rglob("*.*"):
        assert file.read_bytes() == (tmp_path / "digits" / file.relative_to(again)).read_bytes()


def test_a_smoke_page_and_one_of_few_samples_have_no_verdicts(tmp_path: Path) -> None:
    few = {"sample": PARAMS["sample"] | {"count": 64}}
    for number, params in enumerate(({"name": "digits_smoke"}, few)):
        shown = page(image_folder(tmp_path / f"{number}", **params))
        assert "claims" not in sections(shown)
        assert not [s for s in shown.sections if re.search("best|nearest", s.finding)]
        assert figures(shown)["frontier"].caption.startswith("The best ways to spend")
    title = compose("digits_smoke").report.title
    assert title == f"{compose('digits').report.title} (smoke)"


def test_a_page_of_points_is_the_same_page_with_other_measures(tmp_path: Path) -> None:
    shown = page(plane_folder(tmp_path / "toy"))
    assert {"sheet", "frontier", "mmd-by-nfe", "samples", "covariance-error"} <= {*figures(shown)}
    assert "measure-covariance-error" in sections(shown)
    assert "fresh data" in (figures(shown)["frontier"].legend or {})
    assert len(figures(shown)["covariance-error"].panes) == 2  # one for each score


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


def test_measures_of_one_topic_share_a_section(tmp_path: Path) -> None:
    place = ("trained", "", "ocm")
    rows = [Row(k, 0.9, 0.1, *place, t) for k in ("coverage", "width") for t in ("27", "145")]
    about = [Measure(row.measure, f"the {row.measure}", topic="what for?") for row in rows]
    shown = page(image_folder(tmp_path / "digits", [*image_rows(), *rows]), measures(about))
    [section] = [s for s in shown.sections if s.title == "What for?"]
    assert section.finding == "the coverage and the width"
    assert {"coverage", "width"} <= {*figures(shown)}


def test_a_topic_says_which_method_is_best_by_each_measure(tmp_path: Path) -> None:
    values = {("fit", "a", 27): 1.0, ("fit", "b", 27): 2.0, ("fit", "a", 145): 2.0}
    values |= {("fit", "b", 145): 1.0, ("spread", "a", 27): 1.0, ("spread", "b", 27): 2.0}
    rows = [Row(key, v, 0.1, "trained", "", m, str(t)) for (key, m, t), v in values.items()]
    about = [Measure("fit", "fit", "lower", replicate="image", topic="what for?")]
    about += [Measure("spread", "spread", "higher", replicate="image", topic="what for?")]
    shown = page(image_folder(tmp_path / "digits", rows), measures(about))
    [section] = [s for s in shown.sections if s.title == "What for?"]
    assert section.finding == "The best is by fit a (t = 27), b (t = 145); by spread b."


def test_an_extra_feature_space_has_a_section_of_its_own(tmp_path: Path) -> None:
    rows = [row._replace(measure="frechet.inception") for row in image_rows()[:12]]
    shown = page(image_folder(tmp_path / "digits", [*image_rows(), *rows]))
    [section] = [s for s in shown.sections if s.id == "quality-inception"]
    assert section.title == "And in the features of Inception v3?"


def test_a_bound_alone_or_diverged_values_have_a_page(tmp_path: Path) -> None:
    rows = [row for row in image_rows() if row.measure == "bits_per_dim"]
    shown = page(image_folder(tmp_path / "bound", rows))
    assert "quality" not in sections(shown) and "likelihood" in sections(shown)
    assert render(shown)
    values = {
        ("ddpm", "ocm", 5): [float("nan")],
        ("ddpm", "beta", 5): [3],
        ("ddpm", "beta", 10): [3],
    }
    html = render(page(image_folder(tmp_path / "diverged", seeds("frechet", values))))
    assert "NaN" not in html.split("<script>")[0]


def test_bounds_and_timesteps_for_another_decoder_say_so(tmp_path: Path) -> None:
    rules = {"even": {"kind": "even"}, "own": {"kind": "optimal", "decoder_variance": "method"}}
    given = {"likelihood": {"timesteps": rules}}
    html = render(page(image_folder(tmp_path / "digits", evaluate=given)))
    told = "With own timesteps the step into the data has the method's own variance"
    assert told in unescape(html) and html.count("With own timesteps") == 1
    drawn = html[html.index('id="chosen-timesteps"') :]
    assert "ocm/method" in drawn and "50 900" in drawn


def test_guidance_has_a_figure_where_three_scales_were_sampled(tmp_path: Path) -> None:
    rows: list[Row] = []
    for scale in (1.5, 2.0, 3.0):
        values = {("ddpm", "ocm", 10): near(scale), ("ddpm", "beta", 10): near(2 * scale)}
        rows += seeds("frechet", values, guidance=scale)
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
    assert {*files} == {f"reports/{n}" for n in ("index.html", "digits.html", "plotly.min.js")}
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


def test_damage_is_named(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "digits").path
    for file, content in {
        "params.yaml": "- 1\n",
        "provenance.json": "[]",
        "curves.csv": "training\nx\n",
        "timesteps.json": '{"ocm": {"five": [1]}}',
        "pictures/pictures.json": '{"rows": [{}]}',
        "pictures/samples-0.webp": "no picture",
        "results.csv": "no table",
    }.items():
        whole = (folder / file).read_bytes()
        (folder / file).write_text(content)
        with pytest.raises(OcmError, match=Path(file).name.replace(".", r"\.")):
            page(ReportFolder(folder))
        (folder / file).write_bytes(whole)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "digits")
    assert folder.results == Results(image_rows())
    assert folder.params == PARAMS
    assert folder.provenance == PROVENANCE
    chosen = {"ocm": {2: (1, 900)}, "ocm/method": {2: (50, 900)}}  # longer ones are not shown
    assert folder.timesteps == chosen
    assert len(folder.curves["by denoising", "score"]) == 100
    metrics = json.loads((folder.path / "metrics.json").read_text())
    assert metrics["frechet"]["ddpm"]["ocm"]["K5"] == 27
    rows = {row.name: row for row in folder.rows_of("samples")}
    assert next(iter(rows)) == "quality, delta" and [*rows][-1] == files.TEST
    assert rows["ddpm, ocm"].columns == ("nfe 5", "nfe 10")
    first = rows["ddpm, ocm"].cells[0]
    assert first is not None
    np.testing.assert_array_equal(first[:8, :8, 0], made_up.images(36, 8)[0])
    deviations = [row.name for row in folder.rows_of("posterior_std")]
    assert deviations == ["xₜ", "ocm", "M = 1", "M = 10"]
    (folder.path / "old.txt").write_text("")
    again = image_folder(tmp_path / "digits", [])  # what was before is gone
    assert not (again.path / "old.txt").exists()
    assert not [row for row in again.rows_of("samples") if row.name == "ddpm, ocm"]


def test_restored_images_stand_before_their_scores(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    levels = {f"{task}/{row}": made_up.images(6, 8) for task in "ab" for row in ("truth", "y")}
    deviations = {f"{task}/ocm: deviation": draw.uniform(0, 1, (6, 8, 8)) for task in "ab"}
    rows = [
        Row(key, value, 0.01, "trained", task, way, "even", nfe)
        for key, value in {"crps": 0.1, "data_chi2": 1.0}.items()
        for task in "ab"
        for nfe in ([5, 10] if key == "crps" else [10])
        for way in ("ocm", "mmps")
    ]
    made = made_up.folder(
        *(tmp_path / "digits", rows, PARAMS, made_up.images(36, 8)), restored=levels | deviations
    )
    built = page(made, measures(restoration.STAGE.measures))
    [section] = [section for section in built.sections if section.title == USES]
    first = section.blocks[0]
    assert isinstance(first, Figure) and first.id == "restored"
    assert len(first.table.rows) == 6 and first.table.rows[0][:2] == ("a", "truth")
    pictures = {row.name: row for row in made.rows_of("restoration")}
    assert [*pictures] == ["truth", "y", "ocm: deviation"]
    shown = pictures["truth"].cells[0]
    assert shown is not None
    np.testing.assert_array_equal(shown[:8, :8, 0], made_up.images(6, 8)[0])
    assert all(column.startswith("ab"[i]) for i, column in enumerate(pictures["y"].columns))
    drawn = {block.id for block in section.blocks if isinstance(block, Figure)}
    assert drawn == {"restored", "crps"}  # at one nfe a table says it
    assert "data_chi2_by_nfe" in tables(built)


def test_points_are_few_and_small(tmp_path: Path) -> None:
    folder = plane_folder(tmp_path / "toy")
    assert folder.points is not None
    test, samples = folder.points
    assert len(test) == files.MOST_POINTS
    assert {len(points) for points in samples.values()} == {files.MOST_POINTS}
    assert (folder.path / "points.npz").stat().st_size < 100_000
    assert folder.rows_of("samples") == []


@pytest.mark.parametrize("side", [8, 32, 256])
def test_pictures_are_reduced_until_they_fit(tmp_path: Path, side: int) -> None:
    """Pure noise, which early samples are, is as large as its pixels."""
    keys = [("quality", "delta", 5), ("ddpm", "ocm", 5), ("ddpm", "ocm", 10), ("unipc", "none", 5)]
    results, photos = Results(image_rows()), made_up.images(12, side, 3)
    study, shown = Study(results, PARAMS, measures()), (dict.fromkeys(keys, photos), photos)
    files.write_report(tmp_path / "photos", study, PROVENANCE, *shown, {}, {}, None)
    folder = ReportFolder(tmp_path / "photos")
    sizes = [file.stat().st_size for file in (folder.path / "pictures").iterdir()]
    assert 1000 < sum(sizes) <= files.LIMIT
    [row] = [row for row in folder.rows_of("samples") if row.name == "unipc"]
    assert row.cells[0] is not None and row.cells[1] is None


def test_shrinking_takes_means_and_colours_go_from_dark_to_light() -> None:
    small = files.shrink(np.arange(25.0).reshape(1, 5, 5), 2)
    np.testing.assert_array_equal(small, [[[3, 5], [13, 15]]])
    assert files.shrink(np.ones((1, 3, 3), np.uint8), 8).shape == (1, 1, 1)
    shown = files.colours(np.array([[0.0, 0.5, 1.0, 9.0]]), 1.0).astype(int)
    brightness = shown.sum(-1)[0]
    assert brightness[0] < brightness[1] < brightness[2] == brightness[3]
