"""The labelled Zarr store that `encode` and `sample` write and every later stage reads."""
