"""A page as data, and its rendering into one HTML file that opens offline.

Public: `document` (pages, sections, figures, tables), `result_table` (tables that people copy),
`render` (to HTML, by the files in `templates/`), `style` (colours and line styles), `pictures`
(arrays as images inside the page), `verdicts` (claims and what came of them), `provenance` and
`git_history` (what a page was made from).
"""
