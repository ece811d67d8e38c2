"""Sampling: `ancestral` walks down a chain, `cell_sampler` does it as an experiment's cell asks."""
