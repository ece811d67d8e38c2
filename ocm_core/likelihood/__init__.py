"""The variational bound of a reverse chain, term by term, for all methods and chains at once."""
