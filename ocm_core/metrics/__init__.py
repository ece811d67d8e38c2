"""Distances between sets of vectors: Fréchet (FID), kernel (KID), MMD, precision and recall."""
