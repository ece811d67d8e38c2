"""Constants changed one at a time: does a test notice? `python -m tests.constants` says.

A test that passes whatever a constant is cannot fail. Each change has the tests that are to notice
it; the command applies each to a copy of the repository.
"""

from typing import NamedTuple


class Change(NamedTuple):
    file: str  # of ocm_core
    before: str
    after: str
    tests: str  # arguments of pytest


TRAINING = "tests/core/test_training.py"
GRID = f"{TRAINING} -k grid"
SCHEDULES = "tests/core/test_schedules.py"
RUNS = "tests/core/test_published_runs.py"
FLOOR = "tests/core/test_closed_forms.py -k floor"
BORROWED = "tests/core/test_best_interpolation.py -k lower_end"
ADJACENT = "tests/core/test_best_interpolation.py -k adjacent"
SIGNS = "tests/core/test_identities.py -k all_sign"
ANY_TIMESTEPS = "tests/core/test_bounds.py"
KERNELS = "tests/metrics/test_kernel_distance.py"
METHODS = "tests/core/test_methods.py"
CHANNELS = "tests/core/test_recipe.py -k three"

CHANGES = (
    Change("training/state.py", "1.0 - rate)", "2.0 * (1.0 - rate))", f"{TRAINING} -k average"),
    Change("training/loop.py", "0.5 * (1 + math", "0.25 * (3 + math", f"{TRAINING} -k decay"),
    Change("training/loop.py", "math.pi * it", "0.5 * math.pi * it", f"{TRAINING} -k decay"),
    Change("training/loop.py", "_DIVERGED = 1e3", "_DIVERGED = 1e4", f"{TRAINING} -k explodes"),
    Change("training/loop.py", "_SMOOTHING = 0.98", "_SMOOTHING = 0.9", f"{TRAINING} -k smoothed"),
    Change("training/score_matching.py", "_TERMS = 1000", "_TERMS = 500", f"{TRAINING} -k weight"),
    Change("training/moments.py", "/ sqrt(len(values))", "/ len(values)", f"{RUNS} -k moments"),
    Change("training/baselines.py", "_DENSE, _STRIDE = 3", "_DENSE, _STRIDE = 2", GRID),
    Change("diffusion/schedule.py", "first: float = 1e-4", "first: float = 2e-4", RUNS),
    Change("diffusion/schedule.py", "= 0.008", "= 0.009", SCHEDULES),
    Change("diffusion/schedule.py", "= 0.999)", "= 0.9999)", SCHEDULES),
    Change("diffusion/timesteps.py", "steps * 0.8", "steps * 0.81", SCHEDULES),
    Change("diffusion/gaussian.py", "0.044715", "0.0447", f"{RUNS} -k bound"),
    Change("diffusion/gaussian.py", "clamp(min=1e-12)", "clamp(min=1e-10)", FLOOR),
    Change("diffusion/gaussian.py", "sqrt(pi / 2)", "sqrt(pi / 3)", f"{RUNS} -k trajectory"),
    Change("diffusion/denoiser.py", "t - self.shift", "t + self.shift", RUNS),
    Change("covariance/iddpm.py", "tilde[0] = tilde[1]", "tilde[0] = tilde[2]", BORROWED),
    Change("covariance/iddpm.py", "raw + 1.0) / 2.0", "raw + 1.0) / 2.01", RUNS),
    Change("covariance/iddpm.py", "prediction.t == 1)", "prediction.t <= 2)", ADJACENT),
    Change("covariance/learned.py", "prediction.x)) / probes", "prediction.x))", SIGNS),
    Change("covariance/sn.py", "baseline.sqrt()", "baseline", f"{METHODS} -k unit"),
    Change("likelihood/bound.py", "own > 0", "own > variance", ANY_TIMESTEPS),
    Change("diffusion/schedule.py", "= data_range**2", "= data_range", SCHEDULES),
    Change("covariance/interface.py", "c.clamp(max=self", "c.clamp(max=2 * self", RUNS),
    Change("metrics/mmd.py", "-0.5 / widest", "-0.4 / widest", KERNELS),
    Change("metrics/frechet.py", "(count - 1)", "count", "tests/metrics/test_frechet.py"),
    Change("metrics/kernel_distance.py", "pow_(3)", "pow_(2)", KERNELS),
    Change("schema/experiment.py", "return 3 if self.ch", "return 2 if self.ch", CHANNELS),
    Change("api.py", "iterations + 10)", "iterations + 1000)", "tests/test_api.py -k average"),
)
