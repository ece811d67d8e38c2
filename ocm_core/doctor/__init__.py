"""Report what an experiment needs, and how long it takes, before it starts.

`diagnosis` collects what `ocm doctor` prints. `machine`, `files` and `disk` say what is installed,
which published files are missing and how much disk is needed; `nodes` asks nodes of a cluster.
`work` counts the operations of tasks, `pace` measures how many this machine does per second, and
`times` turns both into the estimate of a run and the time that a job asks of a cluster.
"""
