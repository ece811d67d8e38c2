"""Published networks: where their files are, how they are laid out, and how they are converted.

- `registry`: `CHECKPOINTS` describes the six networks of the paper, and `counts` their parameters.
- `convert`: `fetch` downloads a file, checks it and writes safetensors with this project's keys.
- `layouts`: how published files nest their weights.
- `diffusers_folder`: `describe` says what a folder that diffusers wrote holds; `diffusers_models`
  loads the model and the text encoder.
- `head_file`: `save_heads` and `load_heads`, the covariance heads of a denoiser as one file.
"""
