"""Parameter types: which keys an experiment has, and which values go together.

`experiment.Experiment` is the whole tree, `datasets` has a block per data set, `combinations` what
no single key can tell, `block` what all blocks share. Only pydantic is imported, so that building
the graph never waits for torch. `ocm_core/params` reads files into these types.
"""
