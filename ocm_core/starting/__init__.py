"""From a folder of images, and maybe a model, to an experiment that runs: what `ocm init` does.

`images` looks at the pictures, `overlay` writes the experiment down, `pace` estimates its sizes and
hours on this machine, `project` makes of a folder one that Snakemake and DVC can work in.
"""
