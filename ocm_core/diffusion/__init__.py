"""The Gaussian machinery that every method shares: schedules, chains, steps, noise, predictions."""
