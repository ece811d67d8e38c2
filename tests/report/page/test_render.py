"""Any page: no Plotly without charts, and no text that becomes markup."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from ocm_core.report.page.document import DataTable, Page, Section
from ocm_core.report.page.render import render
from tests.report.markup import Elements


def test_a_page_without_charts_carries_no_plotly() -> None:
    html = render(Page("t", "s", (), (Section("s", "S", ("text",)),)))
    assert get_plotlyjs() not in html and len(html) < 50_000


@settings(max_examples=30)  # the templates are compiled for each
@given(st.text(alphabet="<>/&'\"scriptx!-]", max_size=40))
def test_no_text_leaves_its_table_or_its_script(text: str) -> None:
    section = Section("s", "S", (DataTable(text, (text,), ((text,),)), text))
    found = Elements(render(Page("t", text, (text,), (section,))))
    assert len(found.having("script")) == 2 and len(found.having("td")) == 1
    link = found.having("a")[-1]
    assert (
        unquote(link["href"] or "")
        == f"data:text/csv;charset=utf-8,{DataTable(text, (text,), ((text,),)).csv}"
    )
