"""Fitting networks: the one training loop, and what is fitted by it.

`loop.fit` trains any `Objective` and resumes exactly; `state` is what it saves. `batches` makes
noisy batches, `score_matching` and `head_fitting` are objectives on them, `baselines` and `moments`
are Monte-Carlo tables over t that methods and heads start from.
"""
