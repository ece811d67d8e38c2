"""One rule a stage: `ocm run STAGE EXPERIMENT PART` makes one artifact from others.

    artifacts/{experiment}/{phase}/{stage}/{part}/manifest.json

Outputs are `update`d: Snakemake deletes any other output before a job starts, and the old artifact
has to stay until the new one is whole (ocm_core/pipeline/staging.py).
"""

for stage in stages().values():

    rule:
        name:
            stage.name
        input:
            inputs,
            before,
        output:
            *made_by(stage),
        log:
            log_of(stage, ".log"),
        benchmark:
            log_of(stage, ".tsv")
        priority: priority
        threads: 1
        resources:
            mem_mb=memory,
            runtime=minutes,
            gpu=gpus,
            nodes=1,
            cpus_per_gpu=cpus_per_gpu,
            # where a job is on several nodes: `ocm run` itself calls srun there
            mpi=lambda wildcards, rulename: on_several(rulename, "srun"),
            tasks=lambda wildcards, rulename: on_several(
                rulename, asked(rulename, "nodes")
            ),
            tasks_per_gpu=lambda wildcards, rulename: on_several(rulename, 0),
            slurm_extra=gpus_of_each_node,
        params:
            parameters=parameters,
            code=code,
            job=job,
        shell:
            "ocm run {params.job} --threads {threads} --gpus {resources.gpu}"
            " --nodes {resources.nodes} --log {log}"
