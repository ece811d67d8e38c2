"""Shared settings: no timed tests, and one thread per test process."""

import torch
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")
torch.set_num_threads(1)
