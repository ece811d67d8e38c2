"""Autoencoders for latent diffusion.

- `vae`: `Vae` maps between images and scaled latents; `new_autoencoder` builds diffusers'
  `AutoencoderKL` from a checked configuration, and `save_folder` writes it.
- `fetching`: `fetch_vae` downloads a published one and checks it.
- `training`: `VaeFitting`, for experiments that train a small one of their own.
- `encoding`: `LatentEncoding`, what the stage `encode` stores of an image.
"""
