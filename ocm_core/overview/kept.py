"""Pages that are kept in Git, so that anyone can look at them without a run.

A page is its own few hundred kilobytes and Plotly's bundle of 4.8 MB, which is one `<script>`
element and the same for all. Kept is the page without it, compressed, with a digest of the numbers
that it shows; the site has the bundle once, in a file beside the pages.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from plotly.offline import get_plotlyjs

from ocm_core.compare.recorded import METRICS, REPORTS
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_bytes
from ocm_core.io.reading import reading
from ocm_core.pipeline import locks
from ocm_core.pipeline.manifests import checked_folder, folder_of, text_digest
from ocm_core.pipeline.table import Task

SUFFIX = ".page.html.gz"
BUNDLE = "plotly.min.js"  # beside the pages of a site
LIMIT = 2_000_000  # bytes of a kept page
_MOST_HTML = 64 << 20  # bytes that one may unpack to
_EMBEDDED = re.compile(r"<script\b[^>]*>\s*/\*\*\s*\* plotly\.js v(\d+)\..*?</script>", re.DOTALL)
_LINKED = re.compile(rf'<script src="{re.escape(BUNDLE)}" data-major="(\d+)"></script>')
_NUMBERS = re.compile(r"<!-- numbers ([0-9a-f]{64}) -->\n\Z")


@dataclass(frozen=True)
class KeptPage:
    html: str  # it loads `BUNDLE` from its own folder, if it has charts
    numbers: str  # the digest of the metrics that it shows

    @property
    def major(self) -> int | None:
        """The version of Plotly's bundle that drew it; None where it has no charts."""
        found = _LINKED.search(self.html)
        return int(found[1]) if found else None


def kept_file(name: str) -> Path:
    return Path(REPORTS, f"{name}{SUFFIX}")


def kept_names(root: Path) -> list[str]:
    files = (root / REPORTS).glob(f"*{SUFFIX}")
    return sorted(file.name.removesuffix(SUFFIX) for file in files)


def keep(name: str) -> Path:
    """Keep the page of an experiment as its last run has left it, with that run's numbers."""
    report = Task("report", "all")
    with locks.reading(folder_of(name, report)):
        checked_folder(name, report)
        page = Path(REPORTS, f"{name}.html").read_text("utf-8")
        numbers = numbers_digest(Path(), name)
    write_bytes(kept_file(name), pack(page, numbers, name))
    return kept_file(name)


def pack(page: str, numbers: str, name: str) -> bytes:
    """The same bytes for the same page."""
    found = _EMBEDDED.findall(page)
    if len(found) > 1:
        raise OcmError(f"reports/{name}.html: expected Plotly's bundle once, found {len(found)}")
    link = "".join(f'<script src="{BUNDLE}" data-major="{major}"></script>' for major in found)
    own = _EMBEDDED.sub(link, page) + f"<!-- numbers {numbers} -->\n"
    content = gzip.compress(own.encode(), compresslevel=9, mtime=0)
    if len(content) > LIMIT:
        raise OcmError(
            f"reports/{name}.html: {len(content)} bytes without Plotly, compressed; a page that is "
            f"kept in Git has at most {LIMIT}: let the report show fewer or smaller pictures"
        )
    return content


def read_kept(root: Path, name: str) -> KeptPage:
    file = root / kept_file(name)
    with reading(file, "a page that `ocm keep` wrote", f"restore it, or `ocm keep {name}`"):
        with gzip.open(file) as stream:
            content = stream.read(_MOST_HTML + 1)
        if len(content) > _MOST_HTML:
            raise ValueError(f"more than {_MOST_HTML} bytes")
        html = content.decode()
        found = _NUMBERS.search(html)
        if not found:
            raise ValueError("no digest of numbers at its end")
    return KeptPage(html, found[1])


def is_current(root: Path, name: str, page: KeptPage) -> bool:
    """Whether it shows the numbers that lie beside it."""
    return page.numbers == numbers_digest(root, name)


def numbers_digest(root: Path, name: str) -> str:
    file = root / REPORTS / f"{name}{METRICS}"
    return text_digest(file.read_text("utf-8", "replace")) if file.exists() else ""


def bundle(pages: dict[str, KeptPage]) -> str:
    """Plotly for all of them; of the same major version as drew each."""
    text: str = get_plotlyjs()
    found = re.match(r"/\*\*\s*\* plotly\.js v(\d+)\.", text)
    here = int(found[1]) if found else None
    for name, page in pages.items():
        if page.major not in (None, here):
            raise OcmError(
                f"{kept_file(name)}: drawn by plotly.js {page.major}, and {here} is installed; run "
                f"`snakemake --cores 2 reports/{name}.html` and `ocm keep {name}`"
            )
    return text
