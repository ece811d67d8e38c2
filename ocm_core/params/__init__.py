"""From the files of `params/` to a checked `Experiment`.

`compose` puts the Hydra tree together, `methods` and `networks` ask the library for what the files
leave out, `resolved` reads and writes the committed results, `stamps` sees whether a file was
edited since, `assign` writes values into an overlay, `restrict` shows a stage only its keys.
"""
