"""Data sets as Zarr stores, and the autoencoder that turns images into latents."""


rule vae:
    input:
        upstream("vae"),
    output:
        "artifacts/{experiment}/vae/all/manifest.json",
    log:
        "logs/{experiment}/vae/all.log",
    benchmark:
        "logs/{experiment}/vae/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("vae"),
        code=code("vae"),
    shell:
        "ocm run vae {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule encode:
    input:
        upstream("encode"),
    output:
        "artifacts/{experiment}/encode/{part}/manifest.json",
    log:
        "logs/{experiment}/encode/{part}.log",
    benchmark:
        "logs/{experiment}/encode/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("encode"),
        code=code("encode"),
    shell:
        "ocm run encode {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"
