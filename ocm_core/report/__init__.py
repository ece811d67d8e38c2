"""From `reports/NAME/` to its page, the index of all pages, and back: nothing here runs a model.

Public, in the order of reading: `folder` (what a folder holds), `write` (how the stage `report`
writes one), `figures`, `samples`, `tables` and `paper` (parts of a page), `page` (the page of an
experiment), `index` (all of them), `document` and `render` (a page as data, and as HTML), `charts`
and `style`.
"""
