"""From `reports/NAME/` to its page, and the index of all pages: nothing here runs a model."""
