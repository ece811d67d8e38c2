"""Make an experiment from a folder of images, and maybe a model: what `ocm init` does.

`images` looks at the pictures, `overlay` writes the experiment down, `sizes` chooses batch sizes
for this machine, `project` makes a folder that Snakemake and DVC can work in.
"""
