"""What is trained or estimated per score: the score itself, moments, covariance heads."""


rule score:
    input:
        upstream("score"),
    output:
        "artifacts/{experiment}/score/{part}/manifest.json",
    log:
        "logs/{experiment}/score/{part}.log",
    benchmark:
        "logs/{experiment}/score/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("score"),
        code=code("score"),
    shell:
        "ocm run score {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"


rule moments:
    input:
        upstream("moments"),
    output:
        "artifacts/{experiment}/moments/{part}/manifest.json",
    log:
        "logs/{experiment}/moments/{part}.log",
    benchmark:
        "logs/{experiment}/moments/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("moments"),
        code=code("moments"),
    shell:
        "ocm run moments {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"


rule heads:
    input:
        upstream("heads"),
    output:
        "artifacts/{experiment}/heads/{part}/manifest.json",
    log:
        "logs/{experiment}/heads/{part}.log",
    benchmark:
        "logs/{experiment}/heads/{part}.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("heads"),
        code=code("heads"),
    shell:
        "ocm run heads {wildcards.experiment} {wildcards.part} --threads {threads} --gpus {resources.gpu} --log {log}"
