"""From `reports/NAME/` to its page, the index of all pages, and back: nothing here runs a model.

Public, in the order of reading: `folder` (what a folder holds, reading and writing it), `figures`,
`samples`, `tables` and `paper` (parts of a page), `page` (the page of an experiment, and the index
of all), `document` and `render` (a page as data, and as HTML), and `charts`.
"""
