"""The page, the metrics and the plot data of an experiment."""


rule report:
    input:
        upstream("report"),
    output:
        html="reports/{experiment}.html",
        metrics="reports/{experiment}.metrics.json",
        plots=directory("reports/{experiment}.plots"),
        manifest="artifacts/{experiment}/report/all/manifest.json",
    log:
        "logs/{experiment}/report/all.log",
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        gpu=0,
    params:
        parameters=parameters("report"),
        code=code("report"),
    shell:
        "ocm run report {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"
