"""Parameters: a typed schema, the Hydra tree composed into it, and the resolved files."""
