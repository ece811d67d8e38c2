"""The rule that every stage is made from, with `use rule stage as NAME with:` and its output.

It makes nothing itself: its own `stage` is a wildcard that matches no name.
"""


rule stage:
    input:
        upstream,
        before,
    output:
        "artifacts/{experiment}/{stage,(?!)}/{part}/manifest.json",
    log:
        "logs/{experiment}/{stage}/{part}.log",
    benchmark:
        "logs/{experiment}/{stage}/{part}.benchmark.tsv"
    priority: lambda wildcards: stage_of(wildcards).priority
    threads: 1
    resources:
        mem_mb=lambda wildcards: stage_of(wildcards).resources.memory,
        runtime=lambda wildcards: stage_of(wildcards).resources.minutes,
        gpu=gpus,
    params:
        parameters=parameters,
        code=code,
        job=job,
    shell:
        "ocm run {params.job} --threads {threads} --gpus {resources.gpu} --log {log}"
