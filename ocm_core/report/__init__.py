"""From the results of an experiment to its page, its metrics and its plot data.

Public: `toy_page` and `image_page` (the two kinds of page), `metrics` (the numbers that commits are
compared by) and `plot_data` (what `dvc plots` draws). Pages are made in layers, each of which knows
only those above it in this list:

- `page`: a page as data, and its rendering into one HTML file;
- `statistics`: means, errors and comparisons of methods, without a word of layout;
- `figures`, `tables`, `claims`: the parts of a page;
- `shared_sections`, `toy_page`, `image_page`: which parts there are, in which order.
"""
