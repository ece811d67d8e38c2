"""`ocm run STAGE EXPERIMENT PART` makes one artifact from others: one rule a stage."""

for stage in stages().values():
    folder = f"artifacts/{{experiment}}/{stage.phase}/{{stage,{stage.name}}}/{{part}}"
    made, log = [f"{folder}/manifest.json"], "logs/{experiment}/{stage}/{part}"
    if stage.name == "report":
        page = report("reports/{experiment}.html", category="Reports")
        manifest = "artifacts/{experiment}/report/report/all/manifest.json"
        made = [page, "reports/{experiment}/results.csv", manifest]
        log = "logs/{experiment}/report"

    rule:
        name:
            stage.name
        input:
            inputs,
        output:
            *map(update, made),  # the old one stays until the new one is whole
        log:
            f"{log}.log",
        benchmark:
            f"{log}.tsv"
        priority: priority
        resources:
            mem_mb=memory,
            runtime=minutes,
            gpu=gpu_count,
            nodes=1,
            cpus_per_gpu=lambda job: CPUS_PER_GPU if gpu_count(job) else None,
            mpi=on_nodes(lambda count, nodes: "srun"),
            tasks=on_nodes(lambda count, nodes: nodes),
            tasks_per_gpu=on_nodes(lambda count, nodes: 0),
            slurm_extra=on_nodes(lambda n, nodes: f"--gpus-per-node={n // nodes}"),
        params:
            parameters=parameters,
            code=lambda wildcards: state.code(*task_of(wildcards)),
            task=lambda wildcards: str(task_of(wildcards)[1]).split("/"),
        shell:
            "python -m ocm_core.cli run {params.task[0]} {wildcards.experiment} {params.task[1]}"
            " --threads {threads} --gpus {resources.gpu} --nodes {resources.nodes} --log {log}"
