"""Samples, one job per part of the grid that `sample.split` makes."""


use rule stage as sample with:
    output:
        update("artifacts/{experiment}/{stage,sample}/{part}/manifest.json"),
