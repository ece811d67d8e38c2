"""Views of the results: nested metrics, plot data, and the page."""
