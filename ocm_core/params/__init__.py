"""From the files of `params/` to a checked `Experiment`.

`compose` puts files, presets and overrides together; `edits` applies the latter two; `complete` and
`check` ask the library; `document` words the errors; `restrict` shows a stage only its keys.
"""
