"""Tests of the network families against outputs of the public reference implementations."""
