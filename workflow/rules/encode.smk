"""Data sets as Zarr stores."""


rule encode:
    input:
        upstream("encode"),
    output:
        "artifacts/{experiment}/encode/all/manifest.json",
    log:
        "logs/{experiment}/encode/all.log",
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        gpu=0,
    params:
        parameters=parameters("encode"),
        code=code("encode"),
    shell:
        "ocm run encode {wildcards.experiment} --threads {threads} --log {log}"
