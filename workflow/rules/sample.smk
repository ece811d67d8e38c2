"""Samples, one job per part of the grid that `sample.split` makes."""


rule sample:
    input:
        upstream("sample"),
    output:
        "artifacts/{experiment}/sample/{part}/manifest.json",
    log:
        "logs/{experiment}/sample/{part}.log",
    benchmark:
        "logs/{experiment}/sample/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("sample"),
        code=code("sample"),
    shell:
        "ocm run sample {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"
