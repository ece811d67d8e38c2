"""The figures of the pages, each a function from results to a `Figure` with its table of numbers.

Public: `charts` (what all charts share), `axis_limits` (what is beyond an axis), `method_styles` (a
line style per method) and `contrast_sheet` (the samples that are seen first); for toys
`densities`, `toy_curves` and `sample_panels`; for images `frontier`, `differences`,
`metric_curves`, `likelihood`, `tradeoff`, `sample_sheets` and `deviations`; for
both `training_curves`.
"""
