"""Fetch, encode, train, sample, evaluate, report: the rules are in workflow/."""


include: "workflow/Snakefile"


workflow.default_target = "all"  # which an included file cannot set
