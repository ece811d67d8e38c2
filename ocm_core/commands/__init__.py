"""The commands of `ocm`, one file each.

A file's docstring is the command's help; `EXAMPLES`, `add` and `run` are the rest. Start-up is all
that a shell waits for, so what a command works with is imported when it runs.
"""
