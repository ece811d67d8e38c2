"""One tidy table of results per experiment, and what follows from it without drawing anything.

Public: `table` (rows, selections, CSV), `measures` (the registry of what is measured),
`replicates` (errors, paired differences, who is best, nested means for `dvc metrics diff`),
`study` (results by setting, nfe and method), `claims` (the paper's, with verdicts) and `compare`
(what changed between revisions).
"""
