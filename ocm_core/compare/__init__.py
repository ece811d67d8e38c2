"""What changed between two commits: numbers, against their noise, and parameters.

Read in this order: `revisions` (files of a commit), `recorded` (what they say), `changes`
(what differs), `text` and `page`.
"""
