"""One file a stage: its declaration `STAGE`, the artifact that it makes, and `run(job)`.

A stage imports of another only the artifact class; what several stages share stands in files with
an underscore. The graph is built from all of them: what imports diffusers is imported inside
functions, and what a parameter chooses by its name.
"""

# Stages of one phase in the order in which they run; those not listed come last.
ORDER = (
    *("dummy_score", "dummy_vae", "fetch_score", "fetch_vae", "fetch_features"),
    *("fetch_reference", "fetch_data"),
    *("vae", "encode", "classifier", "reference"),
    *("score", "moments", "heads", "selection", "timesteps"),
    *("distances", "mmd", "covariance_error", "likelihood", "score_loss"),
    *("posterior_std", "operations"),
)
