"""All experiments at a glance, as `reports/index.html` and in docs/results.md.

Public: `page` (entries and their rendering), `kept` (pages in Git, without Plotly's bundle),
`result_notes` (in the document, whose numbers are from before), `result_tables` (its figures). A card
is made of `thumbnails`, `sketch` and `headlines`, which ask `routes` for what was reached by whom;
`best` says which methods are best where.
"""
