"""Random numbers: `streams` makes every generator, `noise` draws per sample, `batches` per batch.

All of them are functions of a seed and an index, so that nothing has to be remembered for an exact
resume and nothing depends on the size of a batch, the number of processes or the device.
"""
