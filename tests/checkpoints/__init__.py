"""Tests of the way in for published checkpoints: nothing here needs a network."""
