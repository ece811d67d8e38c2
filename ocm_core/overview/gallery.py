"""The reports as a part of a static site: the kept pages, one copy of Plotly, and the index."""

from __future__ import annotations

from pathlib import Path

from ocm_core.compare.recorded import REPORTS
from ocm_core.overview.kept import BUNDLE, bundle, kept_names, read_kept
from ocm_core.overview.page import entries, render


def gallery(root: Path, home: str) -> dict[str, str]:
    """By address within the site, the text of each file; `home` is relative to the index."""
    pages = {name: read_kept(root, name) for name in kept_names(root)}
    files = {f"{REPORTS}/{name}.html": page.html for name, page in pages.items()}
    if pages:
        files[f"{REPORTS}/{BUNDLE}"] = bundle(pages)
    return {f"{REPORTS}/index.html": render(entries(root, pages), home), **files}
