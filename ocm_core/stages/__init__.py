"""One file a stage: its declaration `STAGE`, the artifact that it makes, and `run(job)`.

Listing them stays fast: what imports diffusers is imported inside functions, and what a parameter
chooses by its name.
"""

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.job import Inputs, Job, MadeOf
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params, require
from ocm_core.schema.experiment import Experiment

__all__ = [
    "Artifact",
    "Experiment",
    "Inputs",
    "Job",
    "MadeOf",
    "Params",
    "Stage",
    "Task",
    "Work",
    "require",
]

# Stages of one phase in the order in which they run; those not listed come last.
ORDER = (
    *("dummy_score", "dummy_vae", "fetch_score", "fetch_vae", "fetch_features"),
    *("fetch_reference", "fetch_data"),
    *("vae", "encode", "classifier", "reference"),
    *("score", "moments", "spectrum", "heads", "selection", "timesteps"),
    *("distances", "mmd", "covariance_error", "likelihood", "codec", "path_weights"),
    *("denoising", "restoration", "score_loss", "posterior_std", "operations"),
)
