"""Benchmarks: ratios measured side by side in one run, each against a stated target.

Baselines are written afresh here from the published description of how a thing is done, on the
same network and data. `ocm bench` runs the suite; no stage imports any of this.
"""
