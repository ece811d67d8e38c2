"""Optimal covariance matching for diffusion models: the library behind the pipeline."""
