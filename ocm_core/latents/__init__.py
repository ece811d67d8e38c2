"""Autoencoders for latent diffusion.

- `vae`: `Vae` maps between images and scaled latents; `save_folder` writes diffusers' format.
- `autoencoder`: `new_autoencoder` builds diffusers' `AutoencoderKL` from a checked configuration.
- `fetching`: `fetch_vae` downloads a published one and checks it.
- `training`: `VaeFitting`, for experiments that train a small one of their own.
- `encoding`: `LatentEncoding`, what the stage `encode` stores of an image.
"""
