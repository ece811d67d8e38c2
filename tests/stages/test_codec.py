"""Files of test images as a stage: rows beside formats, and errors where a file is not right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocm_core.errors import OcmError
from ocm_core.params.compose import compose
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task
from ocm_core.stages import _evaluation, codec
from ocm_core.uses import codec as codecs
from ocm_core.uses.codec import ImageCodec
from tests.stages.jobs import job_of, visible
from tests.uses.test_codec import GREY, gaussian

TASK, COUNT = Task("codec"), 60
CHOSEN = (
    *("schedule.steps=100", "sample.clip={x0: null, covariance: null}"),
    "evaluate.codec={methods: [beta, analytic+dct], nfe: [5, 10]}",
)


class Stored:
    """Images of a Gaussian, with the levels of the digits."""

    def __init__(self) -> None:
        self.x0 = np.round(gaussian(GREY, COUNT)[1] / 255 * 16) / 8 - 1

    def __len__(self) -> int:
        return COUNT

    def read(self, rows: range) -> np.ndarray:
        return self.x0[rows.start : rows.stop].astype(np.float32)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(codec, "open_split", lambda *_: Stored())
    monkeypatch.setattr(_evaluation, "load_denoiser", lambda *_: gaussian(GREY, 1)[0])
    return job_of(visible(compose("digits", CHOSEN), TASK), TASK, tmp_path)


def test_files_take_their_bound_and_stand_beside_formats(job: Job) -> None:
    codec.run(job)
    rows = codec.FileSizes(job.folder).load()
    found = {(row.measure, row.method, row.nfe): row for row in rows}
    for method in ("beta", "analytic+dct"):
        net, excess = (
            found[key, method, 10] for key in ("net_bits_per_dim", "net_bits_less_bound")
        )
        assert abs(excess.value) < 3 * (excess.error or 0) < 0.08
        assert 0 < found["file_bits_per_dim", method, 10].value - net.value < 0.2
    formats = rows.select(measure="file_bits_per_dim", nfe=5).distinct("method")[2:]
    assert formats[:4] == ["png_each", "png_mosaic", "webp_each", "webp_mosaic"]
    assert found["file_bits_per_dim", "png_each", 5].value > 10  # 8×8 pixels, and a header each
    assert set(rows.distinct("timesteps")) == {"even"} and job.notes["images"] == COUNT


def test_a_file_above_its_bound_is_an_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "REACH", 25_000.0)
    with pytest.raises(OcmError, match=r"beta, nfe 5: files are .* above the bound"):
        codec.run(job)


def test_images_that_do_not_come_back_are_an_error(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = ImageCodec.decode

    def wrong(self: ImageCodec, *given: Any) -> np.ndarray:
        images = decode(self, *given)
        images[7, 0, 3, 3] ^= 1
        return images

    monkeypatch.setattr(ImageCodec, "decode", wrong)
    with pytest.raises(OcmError, match="beta, nfe 5: images did not come back"):
        codec.run(job)
