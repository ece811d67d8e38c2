"""Samplers as plain functions: the model, the method and the noise are passed in."""
