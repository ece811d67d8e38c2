"""The variational bound of a reverse chain, term by term (`bound`)."""
