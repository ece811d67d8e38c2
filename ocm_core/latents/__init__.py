"""Autoencoders for latent diffusion: used, fetched and trained."""
