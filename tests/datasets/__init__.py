"""Tests of the data sets, on tiny archives in the published formats."""
