"""The campaign: kills, flips and mutated inputs, seeded and so the same each time.

`make test` runs a short form, `make chaos` the whole; what was tried stands in docs/reliability.md.
"""
