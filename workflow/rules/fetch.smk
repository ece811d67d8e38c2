"""Published files: weights, autoencoders, feature networks, archives of data.

Smoke experiments first write a small checkpoint as its authors would (publish_*). The checkpoint
comes before everything else: it is smaller than the data, and likelier to be missing.
"""


rule publish_score:
    input:
        upstream("publish_score"),
    output:
        "artifacts/{experiment}/publish_score/all/manifest.json",
    log:
        "logs/{experiment}/publish_score/all.log",
    benchmark:
        "logs/{experiment}/publish_score/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("publish_score"),
        code=code("publish_score"),
    shell:
        "ocm run publish_score {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule publish_vae:
    input:
        upstream("publish_vae"),
    output:
        "artifacts/{experiment}/publish_vae/all/manifest.json",
    log:
        "logs/{experiment}/publish_vae/all.log",
    benchmark:
        "logs/{experiment}/publish_vae/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("publish_vae"),
        code=code("publish_vae"),
    shell:
        "ocm run publish_vae {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule fetch_score:
    input:
        upstream("fetch_score"),
    output:
        "artifacts/{experiment}/fetch_score/all/manifest.json",
    log:
        "logs/{experiment}/fetch_score/all.log",
    benchmark:
        "logs/{experiment}/fetch_score/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("fetch_score"),
        code=code("fetch_score"),
    shell:
        "ocm run fetch_score {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule fetch_vae:
    input:
        upstream("fetch_vae"),
        after("fetch_score"),
    output:
        "artifacts/{experiment}/fetch_vae/all/manifest.json",
    log:
        "logs/{experiment}/fetch_vae/all.log",
    benchmark:
        "logs/{experiment}/fetch_vae/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("fetch_vae"),
        code=code("fetch_vae"),
    shell:
        "ocm run fetch_vae {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule fetch_features:
    input:
        upstream("fetch_features"),
        after("fetch_score"),
    output:
        "artifacts/{experiment}/fetch_features/all/manifest.json",
    log:
        "logs/{experiment}/fetch_features/all.log",
    benchmark:
        "logs/{experiment}/fetch_features/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("fetch_features"),
        code=code("fetch_features"),
    shell:
        "ocm run fetch_features {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule fetch_reference:
    input:
        upstream("fetch_reference"),
        after("fetch_score"),
    output:
        "artifacts/{experiment}/fetch_reference/all/manifest.json",
    log:
        "logs/{experiment}/fetch_reference/all.log",
    benchmark:
        "logs/{experiment}/fetch_reference/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("fetch_reference"),
        code=code("fetch_reference"),
    shell:
        "ocm run fetch_reference {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule fetch_data:
    input:
        upstream("fetch_data"),
        after("fetch_score"),
    output:
        "artifacts/{experiment}/fetch_data/all/manifest.json",
    log:
        "logs/{experiment}/fetch_data/all.log",
    benchmark:
        "logs/{experiment}/fetch_data/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("fetch_data"),
        code=code("fetch_data"),
    shell:
        "ocm run fetch_data {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"
