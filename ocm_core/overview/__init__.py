"""All experiments at a glance, as `reports/index.html` and in docs/results.md.

Public: `page` (entries and their rendering), `kept` (pages in Git, without Plotly's bundle),
`result_tables` and `result_notes` (figures of the documents, and whose are from before). A card is
made of `thumbnails`, `sketch` and `headlines`, which ask `routes` for what was reached by whom;
`best` says which methods are best where.
"""
