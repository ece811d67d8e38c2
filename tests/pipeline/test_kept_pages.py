"""`ocm keep` after a real run: the page and the numbers of one run, or nothing."""

from __future__ import annotations

from pathlib import Path

from ocm_core.overview.kept import is_current, kept_file, read_kept
from tests.pipeline.conftest import NAME, Project


def test_a_page_is_kept_with_its_run_and_refused_without(
    made_by_snakemake: Project, tmp_path: Path
) -> None:
    project = made_by_snakemake.copy(tmp_path / "copy")
    assert f"reports/{NAME}.page.html.gz: " in project.run("ocm", "keep")
    assert is_current(project.root, NAME, read_kept(project.root, NAME))
    project.run("ocm", "index")
    assert (project.root / "reports/index.html").read_text().count('class="thumbnails"') == 1
    before = (project.root / kept_file(NAME)).read_bytes()
    with (project.root / f"reports/{NAME}.html").open("a") as page:
        page.write("<p>written by hand")
    said = project.run("ocm", "keep", NAME, fails=True)
    assert f"reports/{NAME}.html: changed" in said
    assert (project.root / kept_file(NAME)).read_bytes() == before
