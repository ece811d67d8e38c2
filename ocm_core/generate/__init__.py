"""Samples on request, beside the pipeline's own: what `ocm sample` does."""
