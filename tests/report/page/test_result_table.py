"""Tables of results are copied as people paste them."""

from __future__ import annotations

import csv
from math import nan

from ocm_core.report.page.result_table import Result, ResultGroup, ResultRow, ResultTable

ROWS = (
    ResultRow("ocm", (Result(1.2345, 0.012, "best"), Result(25.0, nan, "second", tied=True))),
    ResultRow("beta_tilde", (Result(1234.5, 19.0), Result())),
)
TABLE = ResultTable("t", "caption", "method", ("K = 5", "K = 10"), (ResultGroup("DDPM", ROWS),))


def test_latex_has_the_best_in_bold_and_the_second_underlined() -> None:
    assert TABLE.latex.splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & K = 5 & K = 10 \\",
        r"\midrule",
        r"\multicolumn{3}{l}{DDPM} \\",
        r"ocm & \textbf{1.23}$_{\pm 0.01}$ & \underline{25.0}$^\approx$ \\",
        r"beta\_tilde & 1234$_{\pm 19}$ & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_has_the_numbers_and_their_errors() -> None:
    header, first, second = csv.reader(TABLE.csv.splitlines())
    assert header == ["group", "method", "K = 5", "K = 5 ±", "K = 10", "K = 10 ±"]
    assert first == ["DDPM", "ocm", "1.2345", "0.012", "25", ""]
    assert second == ["DDPM", "beta_tilde", "1234.5", "19", "", ""]


def test_markdown_has_a_row_a_method() -> None:
    assert TABLE.markdown.splitlines() == [
        "|  | method | K = 5 | K = 10 |",
        "| --- | --- | ---: | ---: |",
        "| DDPM | ocm | **1.23** ±0.01 | <u>25.0</u>≈ |",
        "| DDPM | beta_tilde | 1234 ±19 |  |",
    ]
