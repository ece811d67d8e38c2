"""The plumbing between the library and the two tools: what a stage reads, writes and depends on.

Read in this order: `table` (the stages), `cells` (the grid of samples), `sources` (which files a
stage is made of), `artifacts` (manifests), `job` and `run` (one stage, executed), `state` and
`sync` (what is up to date, for Snakemake and for DVC), `dvcfile` (the generated `dvc.yaml`).
"""
