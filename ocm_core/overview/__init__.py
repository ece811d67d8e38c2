"""All experiments at a glance, as `reports/index.html`.

Public: `page` (entries and their rendering). `best` says which methods are best where.
"""
