"""Back into diffusers: a model with its heads as a pipeline that `DiffusionPipeline` opens.

- `heads`: the covariance heads, a component with weights.
- `scheduler`: method, timesteps, order and limits, a component without.
- `hooked`: the model's own forward pass, with what heads read of it.
- `pipeline`: `CovariancePipeline`, called like any other.
- `folder`: `save_pipeline` writes all of it, with a model card.
"""
