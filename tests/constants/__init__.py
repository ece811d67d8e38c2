"""Constants changed one at a time: does a test notice? `python -m tests.constants` says.

A test that passes whatever a constant is cannot fail. `changes.py` has the list and, for each
change, the tests that are to notice it; the command applies each to a copy of the repository.
"""
