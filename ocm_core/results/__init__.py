"""One tidy table of results per experiment, and what follows from it without drawing anything."""
