"""Benchmarks: ratios measured side by side in one run, each against a stated target.

`python -m benchmarks` runs them. A file of this folder lists its own in `BENCHMARKS`, and `suite`
lists the files; `interface` says what a benchmark is, `measuring` how time and memory are taken.
Baselines are written afresh from the published description, on the same network and data. Nothing
in `ocm_core` imports this folder, and it is not installed with the package.
"""
