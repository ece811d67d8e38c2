"""What changed between two commits: results, beyond their noise or within it, and parameters.

Public, in the order of reading: `revisions` (the files of a commit), `recorded` (the results and
parameters in them), `number_state` (whether these parameters have made those results), `changes`
(what differs), `text` and `page` (the comparison for a terminal, as JSON, and as a page).
"""
