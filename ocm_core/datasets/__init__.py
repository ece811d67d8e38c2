"""Data sets, one file a kind: `open_data(params, archives)` gives splits that are read by ranges.

The file's name is the value of `data.kind`. `interface` says what a data set gives, `eight_bit`
turns a split into the uint8 images that feature spaces take; files with `_` are shared by several
kinds.
"""
