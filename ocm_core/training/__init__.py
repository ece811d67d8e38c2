"""Fitting networks: draws, objectives, the loop, and the moments of `analytic`."""
