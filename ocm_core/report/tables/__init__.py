"""The tables of the pages that belong to no figure.

Public: `methods` (what each method is, and how often it was clamped), `cost`, `least_steps` (the
fewest steps that reach a target), `probes` (OCM heads trained with different numbers of probes),
`published_results` (the paper's numbers) and `published_comparison` (ours beside them).
"""
