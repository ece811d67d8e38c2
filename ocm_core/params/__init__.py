"""From the files of `params/` to a checked `Experiment`."""
