"""Make an experiment from a folder of images, and maybe a model: what `ocm init` does."""
