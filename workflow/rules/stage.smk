"""The rule that every stage is made from, with `use rule stage as NAME with:` and its output.

It makes nothing itself: its own `stage` is a wildcard that matches no name. Outputs are `update`d:
Snakemake deletes any other output before a job starts, and the old artifact has to stay until the
new one is whole (ocm_core/pipeline/working.py).
"""


rule stage:
    input:
        upstream,
        before,
    output:
        update("artifacts/{experiment}/{stage,(?!)}/{part}/manifest.json"),
    log:
        "logs/{experiment}/{stage}/{part}.log",
    benchmark:
        "logs/{experiment}/{stage}/{part}.benchmark.tsv"
    priority: priority
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
        gpu=gpus,
        nodes=1,
        cpus_per_gpu=cpus_per_gpu,
        # For SLURM's executor, where a job is on several nodes: `ocm run` itself calls srun there.
        mpi=lambda wildcards, rulename: on_several(rulename, "srun"),
        tasks=lambda wildcards, rulename: on_several(rulename, asked(rulename, "nodes")),
        tasks_per_gpu=lambda wildcards, rulename: on_several(rulename, 0),
        slurm_extra=gpus_of_each_node,
    params:
        parameters=parameters,
        code=code,
        job=job,
    shell:
        "ocm run {params.job} --threads {threads} --gpus {resources.gpu}"
        " --nodes {resources.nodes} --log {log}"
