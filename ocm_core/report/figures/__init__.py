"""The figures of the pages, each a function from results to a `Figure` with its table of numbers.

Public: `charts` (what all charts share) and `method_styles` (a line style per method); for toys
`densities`, `toy_curves` and `sample_panels`; for images `metric_curves`, `likelihood`, `tradeoff`,
`sample_sheets` and `deviations`; for both `training_curves`.
"""
