"""Images as one small file, by a diffusion model that knows such images.

    python examples/compress.py

Bits-back coding turns the variational bound into bytes: a file that the same model, on the same
kind of processor, decodes to the same pixels. The images are handwritten digits, and the model is
trained here for some seconds; one of your own comes from `api.load` or `api.wrap`. `ocm compress`
does the same with folders of images (docs/uses.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from own_model import digits, stand_in

from ocm_core import api
from ocm_core.schema.timesteps import PowerTimesteps
from ocm_core.uses import coded_file, lossless

METHOD, LEVELS = "analytic+klt", 17  # the mean variance at each t, along the data's main axes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--count", type=int, default=360, help="of images in the file")
    parser.add_argument("--steps", type=int, default=10, help="network evaluations per image")
    parser.add_argument("--folder", type=Path, default=Path("samples/compress"))
    given = parser.parse_args()
    images, file = digits(), given.folder / "digits.ocm"
    train, test = images[: -given.count], images[-given.count :]
    denoiser = api.fit_head(stand_in(train, given.iterations), train, METHOD)

    timesteps = PowerTimesteps(exponent=1.5, first=0.02)
    how = {"steps": given.steps, "timesteps": timesteps}
    code = api.codec(denoiser, test.shape[1:], METHOD, LEVELS, **how)
    pixels = ((test + 1) * 8).byte().numpy()
    size = coded_file.compress(code, pixels, [f"{i}.png" for i in range(given.count)], {}, file)
    back = coded_file.decompress(code, *coded_file.read_coded(file), file)

    print(f"{file}: {8 * size / back.size:.2f} bits per pixel, with all names")
    print(f"the same pixels: {'yes' if (back == pixels).all() else 'no'}")
    for name in lossless.available():
        content = lossless.encoded(lossless.mosaic(pixels), name)
        print(f"all in one {name}: {8 * len(content) / back.size:.2f} bits per pixel")


if __name__ == "__main__":
    main()
