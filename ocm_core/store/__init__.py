"""The labelled Zarr store: what `encode` and `sample` write and every later stage reads.

`layout` (what a store will hold, to the byte), `writer` (whole shards, resumable), `reader` (a
split as one array, whatever the number of stores), `loader` (shuffled batches). `shards` and
`shuffle` are their parts.
"""
