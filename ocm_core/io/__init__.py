"""Generic input and output: nothing here knows of diffusion, experiments or stages."""
