"""Sampling: down a chain of ours, or by a scheduler of diffusers.

Public: `ancestral` (a chain, with any kernel and covariance method), `order` (the mean from one or
two predictions), `diffusers_solver` (their schedulers), `cell_sampler` (as an experiment asks).
"""
