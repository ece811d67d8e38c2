"""Published networks: where their files are, how they are laid out, and how they are converted.

- `registry`: `CHECKPOINTS` describes the six networks of the paper; `checkpoint_named` finds one.
- `convert`: `fetch` downloads a file, checks it and writes safetensors with this project's keys.
- `layouts`: how published files nest their weights.
- `diffusers_folder`: `describe` says what a folder that diffusers wrote holds; `diffusers_models`
  reads the model.
- `head_file`: `save_heads` and `load_heads`, the covariance heads of a denoiser as one file.
- `counts`: numbers of parameters beside those of the paper.
"""
