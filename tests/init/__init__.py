"""Tests of `ocm init`, and of projects outside a checkout."""
