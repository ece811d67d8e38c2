"""What lies in an artifact's folder: one module per kind of artifact, which writes and reads it.

A stage writes its artifact through one of these modules and reads those of earlier stages through
others; no stage imports another. `pipeline/manifests.py` knows folders and digests, and nothing of
what is in them.
"""
