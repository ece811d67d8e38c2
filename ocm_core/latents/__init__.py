"""Autoencoders that turn images into latents and back: loaded, fetched, trained, planned for."""
