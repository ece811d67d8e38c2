"""Data sets, one file a kind, and the Zarr store that every stage after `encode` reads."""
