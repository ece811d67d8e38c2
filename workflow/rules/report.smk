"""The page, the metrics and the plot data of an experiment.

What else it writes is named by the manifest only: plot data, which depend on the parameters, and
what the metrics were made from. Where an output is new, Snakemake has no record of it and takes the
whole job for up to date.
"""


use rule stage as report with:
    output:
        html=update("reports/{experiment}.html"),
        metrics=update("reports/{experiment}.metrics.json"),
        manifest=update("artifacts/{experiment}/report/all/manifest.json"),
    log:
        "logs/{experiment}/report/all.log",
    benchmark:
        "logs/{experiment}/report/all.benchmark.tsv"
