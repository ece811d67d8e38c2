"""The numbers behind a page.

Public: `estimates` (means over seeds, standard errors, differences), `method_comparison` (which of
several methods is better, beyond noise), `ranking` (best, second, tied), `selections` (parts of the
dataset of results), `head_families` (which learned heads compare with one another, and with the
paper's), `frontier` (ours and rivals at each budget of evaluations) and `image_results` (the
results of an image experiment, with the names of what was measured).
"""
