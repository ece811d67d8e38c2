"""Fetch, encode, train, sample, evaluate, report: the rules are in workflow/."""


include: "workflow/Snakefile"
