"""The labelled Zarr store that `encode` and `sample` write and every later stage reads.

- `layout`: variables, chunks, shards and exact bytes, known before anything is written.
- `writer`: writes whole shards, and resumes.
- `reader`: reads a split as one array, or in shuffled batches.
"""
