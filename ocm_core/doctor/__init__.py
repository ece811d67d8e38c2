"""Report what an experiment needs, and how long it takes, before it starts."""
