"""Numbers from the samples, and from the models themselves."""


rule classifier:
    input:
        upstream("classifier"),
    output:
        "artifacts/{experiment}/classifier/all/manifest.json",
    log:
        "logs/{experiment}/classifier/all.log",
    benchmark:
        "logs/{experiment}/classifier/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("classifier"),
        code=code("classifier"),
    shell:
        "ocm run classifier {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule reference:
    input:
        upstream("reference"),
    output:
        "artifacts/{experiment}/reference/all/manifest.json",
    log:
        "logs/{experiment}/reference/all.log",
    benchmark:
        "logs/{experiment}/reference/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("reference"),
        code=code("reference"),
    shell:
        "ocm run reference {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_images:
    input:
        upstream("evaluate_images"),
    output:
        "artifacts/{experiment}/evaluate_images/{part}/manifest.json",
    log:
        "logs/{experiment}/evaluate_images/{part}.log",
    benchmark:
        "logs/{experiment}/evaluate_images/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_images"),
        code=code("evaluate_images"),
    shell:
        "ocm run evaluate_images {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_points:
    input:
        upstream("evaluate_points"),
    output:
        "artifacts/{experiment}/evaluate_points/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_points/all.log",
    benchmark:
        "logs/{experiment}/evaluate_points/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_points"),
        code=code("evaluate_points"),
    shell:
        "ocm run evaluate_points {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_covariance:
    input:
        upstream("evaluate_covariance"),
    output:
        "artifacts/{experiment}/evaluate_covariance/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_covariance/all.log",
    benchmark:
        "logs/{experiment}/evaluate_covariance/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_covariance"),
        code=code("evaluate_covariance"),
    shell:
        "ocm run evaluate_covariance {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_likelihood:
    input:
        upstream("evaluate_likelihood"),
    output:
        "artifacts/{experiment}/evaluate_likelihood/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_likelihood/all.log",
    benchmark:
        "logs/{experiment}/evaluate_likelihood/all.benchmark.tsv"
    priority: 1  # the longest single job
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_likelihood"),
        code=code("evaluate_likelihood"),
    shell:
        "ocm run evaluate_likelihood {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_deviation:
    input:
        upstream("evaluate_deviation"),
    output:
        "artifacts/{experiment}/evaluate_deviation/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_deviation/all.log",
    benchmark:
        "logs/{experiment}/evaluate_deviation/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_deviation"),
        code=code("evaluate_deviation"),
    shell:
        "ocm run evaluate_deviation {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"


rule evaluate_cost:
    input:
        upstream("evaluate_cost"),
    output:
        "artifacts/{experiment}/evaluate_cost/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_cost/all.log",
    benchmark:
        "logs/{experiment}/evaluate_cost/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_cost"),
        code=code("evaluate_cost"),
    shell:
        "ocm run evaluate_cost {wildcards.experiment} --threads {threads} --gpus {resources.gpu} --log {log}"
