"""The variational bound of a reverse chain: `terms` at one point, `bound` for all chains."""
