"""The published checkpoints: where they are, how they lie on disk, and the one way in.

`registry` is data; `convert.fetch` takes a file from its source to safetensors with our keys.
"""
