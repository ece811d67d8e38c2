"""The page, the metrics and the plot data of an experiment."""


use rule stage as report with:
    output:
        html="reports/{experiment}.html",
        metrics="reports/{experiment}.metrics.json",
        plots=directory("reports/{experiment}.plots"),
        manifest="artifacts/{experiment}/report/all/manifest.json",
    log:
        "logs/{experiment}/report/all.log",
    benchmark:
        "logs/{experiment}/report/all.benchmark.tsv"
