"""Fitting networks: `loop.fit` trains any `Objective`; `baselines`, `moments` are tables over t."""
