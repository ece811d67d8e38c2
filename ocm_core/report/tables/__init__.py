"""The tables of the pages that belong to no figure.

Public: `headline` (the small table that is seen first), `results` and `toy_results` (methods by
steps, ranked by `ranked`), `glossary` (what each label means), `methods` (what each method adds,
and how often it was clamped), `cost`, `least_steps` (the fewest steps that reach a target),
`probes` (OCM heads trained with different numbers of probes), `published_results` (the paper's
numbers) and `published_comparison` (ours beside them).
"""
