"""Data sets as Zarr stores, and the autoencoder that turns images into latents."""


use rule stage as vae with:
    output:
        update("artifacts/{experiment}/{stage,vae}/{part}/manifest.json"),


use rule stage as encode with:
    output:
        update("artifacts/{experiment}/{stage,encode}/{part}/manifest.json"),
