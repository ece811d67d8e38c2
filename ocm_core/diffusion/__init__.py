"""The Gaussian machinery that every method shares.

`schedule` (tables over t, q(x_t | x_0)), `timesteps` (which timesteps are visited), `transition`
(the scalars of one reverse step), `kernels` (DDPM, DDIM), `gaussian` (covariances, divergence and
bins), `score_network` (what a network must offer), `denoiser` and `guidance` (its prediction at
(x_t, t)), `mixture` (closed forms).
"""
