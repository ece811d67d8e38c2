"""The Gaussian machinery that every method shares: docs/tour.md has the way through it."""
