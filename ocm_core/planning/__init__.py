"""What an experiment needs and costs, found out before it starts.

For `ocm doctor`: `diagnosis.diagnose` collects what `machine` (versions and devices),
`published_files` and `disk_space` find, and how long earlier runs took. `run_time` makes of these
the line with which a run begins.

For `ocm cost`: `cost_report` prints the hours on a GPU. `operation_counts` counts what a
computation does, `network_counts` applies it to the networks of an experiment, `workload.Workload`
adds up its stages, `roofline` turns counts into hours, and `cost_tables` lays them out.

For a cluster: `job_needs` says what each job asks for, `schedule` how long all take, `job_report`
prints both for `ocm cost --jobs`; `nodes` asks nodes whether they have what a job needs.
"""
