"""From the files of `params/` to a checked `Experiment`.

`compose` puts the Hydra tree together, `methods` and `networks` ask the library for what the files
leave out, `resolved` reads and writes the committed results, `restrict` shows a stage only its
keys.
"""
