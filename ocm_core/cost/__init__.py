"""What the paper's experiments take on a GPU: counted and computed, never measured.

Read in this order: `counting` (operations and bytes of any computation), `units` and `images` (of
the networks), `work` (of the stages, by the parameters), `gpus` (hours), `tables`, `document`.
"""
