"""Back into diffusers: a model with its heads as a pipeline that `DiffusionPipeline` opens."""
