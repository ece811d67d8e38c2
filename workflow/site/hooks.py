"""MkDocs hooks: the README as the first page, reports, examples, the API, and tables of results."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from tables import filled  # MkDocs looks for it beside this file

from ocm_core.report.page import site
from ocm_core.stages.report import all_measures

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE")  # what the README links to
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LIST_AFTER_TEXT = re.compile(r"^((?!- |\d+\. )\S.*)\n(?=- |\d+\. )", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    written = site(ROOT, "../index.html", all_measures()) | reference()
    written |= {"index.md": readme(), "examples.md": examples()}
    written |= {name: (ROOT / name).read_text() for name in BESIDE}
    for address, content in written.items():
        files.append(File.generated(config, address, content=content))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Fill in tables of results; put the blank line before a list that GitHub does not want."""
    parts = _FENCED.split(filled(markdown, ROOT))
    return "".join(
        part if part.startswith("```") else _LIST_AFTER_TEXT.sub(r"\1\n\n", part) for part in parts
    )


def readme() -> str:
    """The links of README.md are those of the repository; docs/ is the site's own folder."""
    text = (ROOT / "README.md").read_text()
    return text.replace("](docs/", "](").replace("](examples/)", "](examples.md)")


def examples() -> str:
    files = sorted((ROOT / "examples").glob("*.py"))
    return "# Examples\n\n" + "\n".join(_example(file) for file in files)


def _example(file: Path) -> str:
    text = file.read_text()
    title = (ast.get_docstring(ast.parse(text)) or file.name).partition("\n")[0].rstrip(".")
    return f"## {title}\n\n`examples/{file.name}`\n```python\n{text}```\n"


def reference() -> dict[str, str]:
    """A page for each folder or file of the package; the first lists them."""
    found = sorted(path for path in (ROOT / "ocm_core").iterdir() if _is_public(path))
    names = [path.stem for path in found]
    listed = "\n".join(f"- [`ocm_core.{name}`]({name}.md)" for name in names)
    about = "From the docstrings. [The tour](../tour.md) says what lives where, and why."
    pages = {f"api/{name}.md": f"# `{name}`\n\n::: ocm_core.{name}\n" for name in names}
    return {"api/index.md": f"# API reference\n\n{about}\n\n{listed}\n", **pages}


def _is_public(path: Path) -> bool:
    if path.name.startswith("_"):
        return False
    return path.suffix == ".py" or (path / "__init__.py").exists()
