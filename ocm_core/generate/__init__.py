"""Samples on request, outside of the pipeline: what `ocm sample` does.

`request.SampleRequest` is what the user asks for. `from_experiment` (by the artifacts of an
experiment) and `from_folder` (a model that diffusers wrote) turn it into a
`request.SampleGenerator`, and `output.write` runs that and writes the files.
"""
