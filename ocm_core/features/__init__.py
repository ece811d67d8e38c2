"""Feature spaces in which sets of images are compared: FID, KID, precision and recall.

A space is named after its module, `inception`, `efficientnet_lite0` or `classifier`, each with a
function `build`. Only distances in `inception` are FID in the published sense. `interface` has
what they share: `FeatureSpace`, `feature_batches`, `extract` and `resized`. `classifier_training`
trains the classifier; `published_reference` reads the statistics of guided diffusion's evaluator.
"""
