"""A reference set in the published evaluator's format: read as it is, or refused by name."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from ocm_core.errors import OcmError
from ocm_core.features.published_reference import REFERENCES, open_reference

NAME = "imagenet256"


def arrays(count: int = 5, dimension: int = 7) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(0)
    features = drawn.normal(size=(20, dimension))
    return {
        "arr_0": drawn.integers(0, 256, (count, 8, 6, 3), dtype=np.uint8),
        "mu": features.mean(0).astype(np.float32),
        "sigma": np.cov(features.T).astype(np.float32),
        "mu_s": np.zeros(3),  # of another figure, sFID; not used
        "sigma_s": np.eye(3),
    }


def write(archives: Path, content: bytes | dict[str, np.ndarray]) -> Path:
    path = archives / "references" / REFERENCES[NAME].file
    path.parent.mkdir(parents=True)
    if isinstance(content, dict):
        buffer = io.BytesIO()
        np.savez(buffer, **content)
        content = buffer.getvalue()
    path.write_bytes(content)
    return path


def test_statistics_and_images_are_those_of_the_file(tmp_path: Path) -> None:
    written = arrays()
    path = write(tmp_path / "datasets", written)
    found, images, provenance = open_reference(NAME, tmp_path / "datasets")
    for ours, key in ((found.mean, "mu"), (found.covariance, "sigma")):
        assert torch.equal(ours, torch.from_numpy(written[key]).double())
    assert found.count is None and len(images) == 5
    expected = torch.from_numpy(written["arr_0"]).permute(0, 3, 1, 2)
    assert torch.equal(images[1:4], expected[1:4])
    assert provenance["file"] == path.name and len(provenance["sha256"]) == 64
    _, again, _ = open_reference(NAME, tmp_path / "datasets")
    assert torch.equal(again[0:5], expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mu": np.zeros(2), "sigma": np.eye(2)}, "expected a member arr_0.npy"),
        ({"arr_0": arrays()["arr_0"]}, "expected statistics"),
        (arrays() | {"arr_0": np.zeros((2, 8, 6, 3))}, "expected arr_0.npy of uint8"),
        (b"<html>quota</html>", "found a web page"),
        (b"PK\x03\x04 cut off", "expected a whole archive"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, content: bytes | dict[str, np.ndarray], message: str
) -> None:
    path = write(tmp_path / "datasets", content)
    with pytest.raises(OcmError, match=message) as refused:
        open_reference(NAME, tmp_path / "datasets")
    assert path.name in str(refused.value)
