"""Published files: weights, autoencoders, feature networks, archives of data.

Smoke experiments first write a small checkpoint as its authors would (publish_*).
"""


use rule stage as publish_score with:
    output:
        update("artifacts/{experiment}/{stage,publish_score}/{part}/manifest.json"),


use rule stage as publish_vae with:
    output:
        update("artifacts/{experiment}/{stage,publish_vae}/{part}/manifest.json"),


use rule stage as fetch_score with:
    output:
        update("artifacts/{experiment}/{stage,fetch_score}/{part}/manifest.json"),


use rule stage as fetch_vae with:
    output:
        update("artifacts/{experiment}/{stage,fetch_vae}/{part}/manifest.json"),


use rule stage as fetch_features with:
    output:
        update("artifacts/{experiment}/{stage,fetch_features}/{part}/manifest.json"),


use rule stage as fetch_reference with:
    output:
        update("artifacts/{experiment}/{stage,fetch_reference}/{part}/manifest.json"),


use rule stage as fetch_data with:
    output:
        update("artifacts/{experiment}/{stage,fetch_data}/{part}/manifest.json"),
