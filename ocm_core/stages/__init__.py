"""One module a stage, with one function `run(job)`; no stage imports another.

A stage reads artifacts and parameters, calls the library and writes its artifact. Files with `_`
gather what the report's pages show.
"""
