"""Numbers from the samples, and from the models themselves."""


rule evaluate_samples:
    input:
        upstream("evaluate_samples"),
    output:
        "artifacts/{experiment}/evaluate_samples/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_samples/all.log",
    benchmark:
        "logs/{experiment}/evaluate_samples/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_samples"),
        code=code("evaluate_samples"),
    shell:
        "ocm run evaluate_samples {wildcards.experiment} --threads {threads} --log {log}"


rule evaluate_model:
    input:
        upstream("evaluate_model"),
    output:
        "artifacts/{experiment}/evaluate_model/all/manifest.json",
    log:
        "logs/{experiment}/evaluate_model/all.log",
    benchmark:
        "logs/{experiment}/evaluate_model/all.benchmark.tsv"
    conda:
        "../envs/ocm.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        gpu=0,
    params:
        parameters=parameters("evaluate_model"),
        code=code("evaluate_model"),
    shell:
        "ocm run evaluate_model {wildcards.experiment} --threads {threads} --log {log}"
