"""What a covariance is for: error bars, restoration, files."""
