"""What the documents say is what the repository holds."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from ocm_core.cli import all_commands
from tests.docs.page import blocks

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", *sorted(str(f.relative_to(ROOT)) for f in (ROOT / "docs").glob("*.md"))]


def listed(heading: str, place: int) -> set[str]:
    """The names in the first column of a table of docs/running.md."""
    section = (ROOT / "docs/running.md").read_text().split(f"\n## {heading}\n")[1]
    tables = re.findall(r"(?:^\|.*\n)+", section.split("\n## ")[0], re.MULTILINE)
    first = (row.split("|")[1] for row in tables[place].splitlines())
    return {name for cell in first for name in re.findall(r"`([a-z0-9_]+)`", cell)}


def test_every_experiment_and_every_preset_is_listed() -> None:
    experiments = {file.stem for file in (ROOT / "params/experiment").glob("*.yaml")}
    presets = {f"_{file.stem}" for file in (ROOT / "params/preset").glob("*.yaml")}
    assert (listed("Experiments", 0), listed("Experiments", 1)) == (experiments, presets)
    table = README.split("\n## Experiments\n")[1].split("\n\n")[0]
    named = {n for row in table.splitlines() for n in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == experiments
    assert len(README.splitlines()) <= 120


def test_every_command_of_the_documents_exists() -> None:
    texts = [(ROOT / page).read_text() for page in PAGES if page != "docs/reliability.md"]
    named = {name for text in texts for name in re.findall(r"(?:^|`)ocm ([a-z]+)\b", text, re.M)}
    assert {"run", "sync", "report"} <= named
    assert named - set(all_commands()) == set()


SHIPPED = "ocm_core/shipped"  # made when a wheel is built


@pytest.mark.parametrize("page", PAGES)
def test_every_source_file_and_link_of_a_page_exists(page: str) -> None:
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
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_file_that_opens_a_section_of_the_mathematics_has_a_formula() -> None:
    opened = re.findall(
        r"^## .*\n\(`([\w/]+\.py)`", (ROOT / "docs/mathematics.md").read_text(), re.M
    )
    assert "diffusion/transition.py" in opened
    formula = re.compile("[ᾱβσΣεΓτλ√²]")
    plain = [f for f in opened if not formula.search((ROOT / "ocm_core" / f).read_text())]
    assert plain == []


def test_no_load_can_run_code() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.smk", "*Snakefile"], cwd=ROOT, capture_output=True, text=True
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
