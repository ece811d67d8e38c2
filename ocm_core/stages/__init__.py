"""One module a stage: reads its inputs and parameters, calls the library, writes its artifact."""
