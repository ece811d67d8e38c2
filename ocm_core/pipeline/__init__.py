"""The plumbing between the library and the two tools: what a stage reads, writes and depends on.

Read in this order: `table` (the stages) and `needs` (the words it is written in), `sources` (which
files a stage is made of), `manifests` (artifacts), `locks` (who may touch one), `working` (how one
comes about), `job` and `run` (one stage, executed), `gpus` (those of a job), `staleness` and `sync`
(what is up to date, for Snakemake and for DVC), `dvc_yaml` and `generated_files` (what is generated
from parameters).
"""
