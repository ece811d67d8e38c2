"""How far samples are from the data, and a predicted covariance from the true one."""
