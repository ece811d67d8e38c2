"""The variational bound of a reverse process, term by term (`bound`)."""
