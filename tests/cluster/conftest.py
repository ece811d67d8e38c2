"""A cluster for the tests of this folder; where there can be none, they are skipped in one line."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.slurm import Slurm, hindrance, install
from tests.pipeline.conftest import empty, shelf

__all__ = ["empty", "shelf"]  # fixtures


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if not os.environ.get("OCM_CLUSTER"):
        pytest.skip("`make cluster` brings up a cluster, `make test` does not")
    if reason := hindrance():
        pytest.skip(f"no cluster here: {reason}")
    if not install():
        pytest.skip("no cluster here: apt could not install slurm-wlm and munge")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end in order
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    except PermissionError as error:  # of devices or users, which some containers do not allow
        pytest.skip(f"no cluster here: {error}")
    finally:
        cluster.stop()
