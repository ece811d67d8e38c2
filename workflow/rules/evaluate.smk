"""Numbers from the samples, and from the models themselves."""


use rule stage as classifier with:
    output:
        update("artifacts/{experiment}/{stage,classifier}/{part}/manifest.json"),


use rule stage as reference with:
    output:
        update("artifacts/{experiment}/{stage,reference}/{part}/manifest.json"),


use rule stage as evaluate_images with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_images}/{part}/manifest.json"),


use rule stage as evaluate_jackknife with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_jackknife}/{part}/manifest.json"),


use rule stage as evaluate_points with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_points}/{part}/manifest.json"),


use rule stage as evaluate_covariance with:
    output:
        update(
            "artifacts/{experiment}/{stage,evaluate_covariance}/{part}/manifest.json"
        ),


use rule stage as evaluate_likelihood with:
    output:
        update(
            "artifacts/{experiment}/{stage,evaluate_likelihood}/{part}/manifest.json"
        ),


use rule stage as evaluate_loss with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_loss}/{part}/manifest.json"),


use rule stage as evaluate_deviation with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_deviation}/{part}/manifest.json"),


use rule stage as evaluate_cost with:
    output:
        update("artifacts/{experiment}/{stage,evaluate_cost}/{part}/manifest.json"),
