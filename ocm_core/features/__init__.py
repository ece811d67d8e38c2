"""Spaces in which images are compared, one module each; a space is named after its module.

A distance means nothing without the name of its space: it is FID in `inception` alone.
"""
