"""Count the operations of one evaluation of the network, alone and with each covariance method."""

from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from ocm_core.covariance import build_all
from ocm_core.results.table import Row
from ocm_core.stages import Job, Params, Stage
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable
from ocm_core.stages.heads import load_denoiser

_PRODUCT = 2.0  # passes that a product with the Jacobian costs: a backward pass


class OperationsParams(Params):
    """Nothing to choose: the operations of one sample are counted, not timed."""


STAGE = Stage(
    __name__,
    "evaluate",
    params=OperationsParams,
    **evaluating(
        methods=lambda experiment, part: list(experiment.methods),
        scores=lambda experiment, part: experiment.network.scores[-1:],
        stored=False,
    ),
)


class Operations(ResultsTable):
    """One row of the measure `operations` per method, relative to the network alone."""


def run(job: Job) -> None:
    """Count with a network of these sizes, without timing anything."""
    methods, shape, device = build_all(job.experiment.methods), job.experiment.shape, job.device
    denoiser, heads = load_denoiser(job, job.experiment.network.scores[-1], methods), {}
    x, label = torch.zeros(1, *shape, device=device), None
    if denoiser.network.conditional:
        label = torch.zeros(1, dtype=torch.int64, device=device)
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            prediction = denoiser.predict(x, denoiser.schedule.steps // 2, label)
        alone = int(counter.get_total_flops())
        for name in denoiser.heads:
            with FlopCounterMode(display=False) as counter:
                prediction.head(name)
            heads[name] = int(counter.get_total_flops())
    rows = [
        Row("operations", 1 + heads.get(label, 0) / alone + _PRODUCT * products, method=label)
        for label, method in methods.items()
        if (products := method.jacobian_products(prod(shape))) is not None
    ]
    Operations(job.folder).save(rows)
    parameters = sum(p.numel() for p in denoiser.network.parameters())
    job.note(operations_per_pass=alone, network_parameters=parameters)
