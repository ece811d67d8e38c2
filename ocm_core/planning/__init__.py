"""What there is and what there is not, before anything starts.

Read in this order: `machine` (versions and devices), `files` (published ones that an experiment
needs), `disk` (what it will write), `times` (what earlier runs took), `findings` (all of it).
"""
