"""What the documents say is what the repository holds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.compare.revisions import WorkingTree, commit
from ocm_core.errors import OcmError
from ocm_core.overview import result_notes
from ocm_core.overview.result_tables import DOCUMENTS, named_in, refilled
from tests.docs.page import blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_figures_are_those_of_the_committed_metrics(document: Path) -> None:
    """Of HEAD: a run on another machine may round its own numbers otherwise."""
    text = (ROOT / document).read_text()
    assert len(named_in(text)) >= 1
    assert refilled(text, commit(ROOT, "HEAD")) == text, "run `ocm status --write`"


def test_every_figure_of_a_table_is_filled_in() -> None:
    """In each row, none left out; what the metrics do not have is named."""
    text = "| digits: fid | K = 5 | K = 10 |\n| --- | --- | --- |\n| `ddpm.ocm` | 0.0 | 0.000 |\n"
    fid = json.loads((ROOT / "reports/digits.metrics.json").read_text())["fid"]["ddpm"]["ocm"]
    found = refilled(text, WorkingTree(ROOT))
    assert found.splitlines()[-1] == f"| `ddpm.ocm` | {fid['K5']:.1f} | {fid['K10']:.3f} |"
    with pytest.raises(OcmError, match=r"fid.ddpm.ocn.K5, and reports/digits.metrics.json has not"):
        refilled(text.replace("ocm", "ocn"), WorkingTree(ROOT))
    with pytest.raises(OcmError, match=r"row 'ddpm.ocm': expected 2 figures"):
        refilled(text.replace(" | 0.000", ""), WorkingTree(ROOT))


def test_no_old_number_is_called_the_present_code_s() -> None:
    """What the note says of old numbers stays true; after a run, or an edit: write it again."""
    wrong = result_notes.untrue(ROOT)
    assert wrong == [], f"numbers from before: {', '.join(wrong)}; run `ocm status --write`"


def test_the_note_speaks_of_every_experiment_with_figures() -> None:
    note = (ROOT / result_notes.FILE).read_text()
    assert [name for name in sorted(named()) if f"\n- `{name}`: " not in note] == []


def test_the_readme_shows_the_default() -> None:
    assert named() >= {"digits", "toy_mog9"}


def listed_experiments() -> set[str]:
    """Of the table; "each of those six with `_x`" stands for six names."""
    table = (ROOT / "docs/running.md").read_text().split("\n## Experiments\n")[1].split("\n\n")[0]
    first = [re.findall(r"`([a-z0-9_]+)`", row.split("|")[1]) for row in table.splitlines()]
    whole = {name for names in first for name in names if not name.startswith("_")}
    endings = {name for names in first for name in names if name.startswith("_")}
    return whole | {f"{name}{ending}" for name in CHECKPOINTS for ending in endings}


def test_every_experiment_is_listed() -> None:
    assert listed_experiments() == {f.stem for f in (ROOT / "params/experiment").glob("*.yaml")}


def named() -> set[str]:
    return set().union(*(named_in((ROOT / document).read_text()) for document in DOCUMENTS))


def test_every_folder_that_the_tour_names_exists() -> None:
    first = (ROOT / "docs/tour.md").read_text().split("\n## ")[0]
    table = re.findall(r"^\| (`.*?`) \|", first, re.MULTILINE)
    named = [name for cell in table for name in re.findall(r"`([\w./]+)`", cell)]
    folders = [name for name in named if "/" in name]
    assert "ocm_core/covariance" in folders
    assert [name for name in folders if not (ROOT / name).exists()] == []


PAGES = ["README.md", *sorted(str(f.relative_to(ROOT)) for f in (ROOT / "docs").glob("*.md"))]
SHIPPED = "ocm_core/shipped"  # made when a wheel is built


@pytest.mark.parametrize("page", PAGES)
def test_every_source_file_that_a_page_names_exists(page: str) -> None:
    """Below the repository, the package or a room of it; files that a page writes are new."""
    text = (ROOT / page).read_text()
    written = {block.file for block in blocks(text)} | {SHIPPED}
    named = re.findall(r"`((?:ocm_core|tests|benchmarks)/[\w./]+|[\w/]+\.py)`", text)
    rooms = [ROOT, ROOT / "ocm_core", *(ROOT / "ocm_core").iterdir()]
    missing = [
        name
        for name in dict.fromkeys(named)
        if name not in written and not any((room / name).exists() for room in rooms)
    ]
    assert missing == []


def test_the_file_that_opens_a_section_of_the_mathematics_has_a_formula() -> None:
    """That it exists is not enough: `datasets/mixture.py` does, and computes nothing."""
    opened = re.findall(
        r"^## .*\n\(`([\w/]+\.py)`", (ROOT / "docs/mathematics.md").read_text(), re.M
    )
    assert "diffusion/transition.py" in opened
    formula = re.compile("[ᾱβσΣεΓτλ√²]")
    plain = [f for f in opened if not formula.search((ROOT / "ocm_core" / f).read_text())]
    assert plain == []


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_no_load_can_run_code() -> None:
    """Checkpoints are opened by safetensors, or by torch.load with weights_only=True."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.smk", "Snakefile"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    sources = {name: (ROOT / name).read_text() for name in tracked if not name.startswith("tests/")}
    assert len(sources) > 80
    for name, text in sources.items():
        for call in re.findall(r"torch\.load\(.*?\)", text, re.DOTALL):
            assert "weights_only=True" in call, name
        assert not re.search(r"\bpickle\.loads?\(|allow_pickle=True|(?<![.\w])eval\(", text), name


def test_the_timings_are_those_of_the_committed_benchmarks() -> None:
    found = json.loads((ROOT / "reports/benchmarks.json").read_text())
    text = (ROOT / "docs/speed.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d.e-]+) \|[^|]*\| (yes|\*\*no\*\*) \|$", text, re.M)
    assert {name for name, *_ in rows} == set(found)
    for name, shown, holds in rows:
        assert shown == f"{found[name]['ratio']:.3g}" and (holds == "yes") == found[name]["holds"]
