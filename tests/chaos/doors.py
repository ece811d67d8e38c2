"""Every door where bytes come in: what is whole there, how it is damaged, how it is let in."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocm_core import api
from ocm_core.cells import parts
from ocm_core.checkpoints.convert import fetch
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import TextEncoder
from ocm_core.checkpoints.head_file import load_heads, save_heads
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.datasets.base import decode
from ocm_core.datasets.folder import FolderData
from ocm_core.datasets.lsun_bedroom import LsunBedroomData
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.features.published_reference import REFERENCES, open_reference
from ocm_core.io.archives import Archive, locate
from ocm_core.io.checksums import FileRecord
from ocm_core.io.fetch import Lock, download
from ocm_core.latents.vae import Vae
from ocm_core.params.compose import active_names, compose
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.artifacts import Key
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import StagingFolder
from ocm_core.pipeline.state import results_state
from ocm_core.report.folder import read_folder
from ocm_core.report.page import comparison, index, page
from ocm_core.report.render import render
from ocm_core.results.compare import compare
from ocm_core.store.reader import open_split
from tests.chaos.mutations import BYTE_DAMAGES, ODD_VALUES, damage_for, flip, of_bytes
from tests.checkpoints import files as checkpoint_files
from tests.datasets import files as archive_files
from tests.datasets.conftest import without_published_digests
from tests.datasets.kinds import KINDS
from tests.init.folders import write_stable_diffusion
from tests.latents import tiny as tiny_vae
from tests.metrics.test_published_reference import arrays
from tests.networks.diffusers_cases import PLAIN, model
from tests.store.data import plan, values, write_jobs

from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip

ROOT, HERE = Path(__file__).parents[2], Path()
Damage = Callable[[Random], None]


@dataclass
class Door:
    """What comes in where; decorates the function that reads it, as the project does."""

    name: str
    what: str  # was tried, for docs/reliability.md
    build: Callable[[], object]  # writes what is whole
    short: int  # how many inputs in `make test`
    full: int  # and in `make chaos`
    damage: Damage

    def __call__(self, enter: Callable[[], object]) -> None:
        self.enter = enter
        DOORS[self.name] = self


DOORS: dict[str, Door] = {}


def one_of(*patterns: str) -> Damage:
    """Damages one file among those that match."""

    def damage(draw: Random) -> None:
        found = sorted(path for pattern in patterns for path in HERE.glob(pattern))
        file = draw.choice([path for path in found if path.is_file()])
        file.write_bytes(damage_for(file)(file.read_bytes(), draw))

    return damage


def placed(name: str) -> Path:
    """Return a path whose folder is there."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    return Path(name)


# Parameters and numbers

GROUPS = {  # files that an experiment is composed of
    "mnist_latent": ("experiment/mnist_latent.yaml", "base/images.yaml", "*/small*.yaml"),
    "toy_mog9": ("experiment/toy_mog9.yaml", "base/mixture.yaml"),
    "cifar10_ls_smoke": ("experiment/cifar10_ls.yaml", "preset/smoke.yaml", "base/published.yaml"),
}


def copy_params() -> None:
    shutil.copytree(ROOT / "params", "params")
    Path("experiment").write_text("mnist_latent")
    Path("overrides").write_text("train.heads.learning_rate=1e-3")


def damage_composed(draw: Random) -> None:
    name = draw.choice(list(GROUPS))
    Path("experiment").write_text(name)
    one_of(*(f"params/{pattern}" for pattern in GROUPS[name]))(draw)


@Door("composed files", "the files of params/, composed", copy_params, 12, 200, damage_composed)
def enter_composed() -> None:
    """As `ocm status` and the Snakefile do: every job that the files ask for is counted out."""
    experiment = compose(Path("experiment").read_text())
    parts(experiment)
    _ = Graph(experiment).tasks


def copy_results() -> None:
    """Copy what a run leaves of an experiment, and commit it."""
    shutil.copytree(ROOT / "reports/toy_mog9", "reports/toy_mog9")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=results"]):
        subprocess.run([*git, *command], check=True)


@cache
def _graph() -> Graph:
    with chdir(ROOT):
        return Graph(compose("toy_mog9"))


READ = "reports/NAME/*, read as `ocm report`, `index`, `status` and `compare` do"


@Door("results", READ, copy_results, 15, 400, one_of("reports/toy_mog9/*"))
def enter_results() -> None:
    render(page(read_folder("toy_mog9", HERE)))
    index(HERE)
    found = compare(HERE, "HEAD")
    found.text(everything=True)
    found.tree(everything=True)
    render(comparison(found, everything=True))
    results_state(_graph(), Path("reports"))


ACTIVE = "params/active.yaml"
Door(
    *("active experiments", ACTIVE),
    lambda: placed(ACTIVE).write_text("# what a bare run makes\nactive: [digits, toy]\n"),
    *(40, 300, one_of(ACTIVE)),
)(active_names)

OVERRIDES = (
    *("train.heads.learning_rate=1e-3", "sample.samplers.ddpm.methods=[beta,ocm_relative]"),
    "sample.samplers.ddim.grids=[{nfe: [10, 20], guidance: [1.0]}]",
    *("+methods.mine={kind: rademacher, probes: 3}", "~report.title", "network.width=64"),
    *("data.layout.per_axis=3", "encode.jobs=1", "report.title='a title'", "schedule.kind=cosine"),
)


def damage_override(draw: Random) -> None:
    key, equals, value = draw.choice(OVERRIDES).partition("=")
    match draw.randrange(4):
        case 0:
            value = str(draw.choice(ODD_VALUES))[:2000]
        case 1:
            value = draw.choice(("${x}", "${", "[" * 400, "a,b", "range(1,10)", "{a: {b: [", "'"))
        case 2:
            key = draw.choice((key.upper(), f"+{key}", f"++{key}", f"~{key}", f"{key}@x", "", "."))
        case _:
            text = draw.choice(BYTE_DAMAGES)(f"{key}{equals}{value}".encode(), draw)
            key, equals, value = text.decode("latin-1"), "", ""
    Path("overrides").write_bytes(f"{key}{equals}{value}".encode(errors="surrogateescape"))


@Door("overrides", "overrides of parameters, as typed", copy_params, 12, 200, damage_override)
def enter_overrides() -> None:
    override = Path("overrides").read_bytes().decode(errors="surrogateescape")
    Graph(compose("toy_mog9", [override]))


# Artifacts

ARTIFACT = Task("encode", "all")


def write_artifact() -> None:
    key = Key(parameters="a" * 64, sources="", inputs={"fetch_data/all": "b" * 64})
    staged = StagingFolder("toy", ARTIFACT, key)
    staged.prepare()
    for file in (staged.artifact / "sub/one", staged.artifact / "two", staged.outputs / "page"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    staged.finish({"items": 3}, {"sub": "c" * 64})


Door(
    *("manifests", "manifests of artifacts", write_artifact, 200, 2500), one_of("**/manifest.json")
)(partial(artifacts.checked_folder, "toy", ARTIFACT))


def write_store() -> None:
    whole = plan(range(20), dtype="uint8")
    write_jobs(HERE, whole, values(20, whole.shape, "uint8"), jobs=2)


SHARDS = one_of("*/train.zarr/**/*")


@Door("stores", "Zarr stores: metadata and shards", write_store, 50, 1600, SHARDS)
def enter_store() -> None:
    split = open_split(sorted(HERE.iterdir()), "train")
    split.all()
    split.read(np.array([0, len(split) - 1]))
    _ = split.labels


# Weights

ODD_TENSORS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: torch.nested.nested_tensor([x, x]),
    lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    *(lambda x: x.to_sparse(), lambda x: x.reshape(-1, 1).to_sparse_csr()),
    lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    *(lambda x: x.to("meta"), lambda x: x.double(), lambda x: x.bfloat16()),
    *(lambda x: x.to(torch.complex64), lambda x: torch.zeros(()).expand(10**9)),
    *(lambda x: torch.zeros(()).expand(x.shape), lambda x: torch.nn.Parameter(x)),
    *(lambda x: x[..., :0], lambda x: [x], lambda x: {"deep": {"deeper": x}}),
    *(lambda x: "a string", lambda x: None),
)


def write_checkpoint() -> None:
    checkpoint = checkpoint_files.tiny("celeba64")
    state = checkpoint_files.weights(checkpoint)
    for name, legacy in (("zipped", False), ("legacy", True)):
        checkpoint_files.write(checkpoint.source(), state, Path(name), legacy)


def damage_checkpoint(draw: Random) -> None:
    """Bytes of either format; or a whole file with a tensor that no published file has."""
    place = Path(draw.choice(("zipped", "legacy")))
    if draw.random() < 0.6:
        place.write_bytes(of_bytes(place.read_bytes(), draw))
    else:
        checkpoint = checkpoint_files.tiny("celeba64")
        state: dict[Any, Any] = dict(checkpoint_files.weights(checkpoint))
        key = draw.choice(list(state))
        state[key] = draw.choice(ODD_TENSORS)(state[key])
        content = checkpoint_files.WRITERS[checkpoint.source().layout](state)
        torch.save(content, place, _use_new_zipfile_serialization=place.name == "zipped")
    Path("legacy" if place.name == "zipped" else "zipped").unlink()


WEIGHTS = "PyTorch files, both formats, and tensors that no published file has"


@Door("checkpoints", WEIGHTS, write_checkpoint, 40, 500, damage_checkpoint)
def enter_checkpoint() -> None:
    checkpoint = checkpoint_files.tiny("celeba64")
    for place in filter(Path.exists, (Path("zipped"), Path("legacy"))):
        target = placed(f"{place}_here/{checkpoint.source().file}")
        shutil.copyfile(place, target)
        fetch(checkpoint, target.parent, Lock(Path(f"{place}.lock.json")))


@cache
def denoiser() -> Denoiser:
    return api.wrap(model(PLAIN), DDPMScheduler(num_train_timesteps=40))


HEADS = Path("heads.safetensors")


def write_heads() -> None:
    bare = denoiser()
    heads = {
        "ocm": CovarianceHead(bare.network.make_head("simple")),
        "npr": CovarianceHead(bare.network.make_head("complex"), torch.ones(41), "tapered"),
    }
    save_heads(replace(bare, heads=heads), HEADS)


@Door("heads", "files of covariance heads", write_heads, 30, 900, one_of(HEADS.name))
def enter_heads() -> None:
    loaded = load_heads(denoiser(), HEADS)
    for label in loaded.heads.keys() & {"ocm", "npr"}:
        api.sample(loaded, (3, 8, 8), label, steps=2, count=1)


Door(
    *("diffusers folders", "a UNet2DModel and its scheduler, as diffusers saves them"),
    lambda: DDPMPipeline(model(PLAIN), DDPMScheduler()).save_pretrained(HERE),
    *(40, 600, one_of("*/*.json", "*/*.safetensors")),
)(lambda: api.load(HERE))


@Door(
    *("text encoders", "a CLIPTextModel and its tokenizer beside a UNet2DConditionModel"),
    *(partial(write_stable_diffusion, HERE), 20, 300, one_of("t*/*.json", "t*/*.safetensors")),
)
def enter_text_encoder() -> None:
    found = describe(HERE).text
    assert found is not None
    _ = found.digest
    TextEncoder.load(HERE)(["a cat", ""])


Door(
    *("autoencoders", "an AutoencoderKL, as diffusers saves it", partial(tiny_vae.saved, HERE)),
    *(40, 500, one_of("*")),
)(lambda: Vae.load(HERE))


# Data

ARCHIVES = (
    *("cifar10", "cifar10_package", "mnist_original", "celeba64"),
    *("imagenet64_png", "imagenet64_npz", "imagenet256"),
)


def write_archives() -> None:
    for kind in ARCHIVES:
        place = Path(kind, "datasets", KINDS[kind].block.kind)
        place.mkdir(parents=True)
        KINDS[kind].write(place)


def damage_archives(draw: Random) -> None:
    """One data set's; the others are whole, and opening them again would only take time."""
    kept = draw.choice(sorted(HERE.iterdir()))
    for place in set(HERE.iterdir()) - {kept}:
        shutil.rmtree(place)
    one_of("*/datasets/*/*")(draw)


PACKED = "archives of data sets: tar, tar in tar, tar.gz, packages of npm, zip, npz in zip"


@Door("archives", PACKED, write_archives, 30, 1000, damage_archives)
def enter_archives() -> None:
    with without_published_digests():
        for place in HERE.iterdir():
            for split in KINDS[place.name].block.open(place / "datasets").splits.values():
                split.read(range(len(split)))


def write_lmdb() -> None:
    """Small images in two overflow pages, and enough of them for a tree of pages."""
    content = archive_files.encoded(archive_files.pixels(0, 8, 9), "PNG")
    images = {f"{7919 * i:040x}": content + bytes(5000) for i in range(80)}
    archive_files.lsun(Path("datasets/lsun_bedroom/bedroom_val_lmdb.zip"), images)


@Door("LMDB", "databases of LSUN", write_lmdb, 40, 800, one_of("datasets/*/*.zip"))
def enter_lmdb() -> None:
    data = LsunBedroomData(kind="lsun_bedroom", splits=["test"])
    with without_published_digests():
        split = data.open(Path("datasets")).splits["test"]
    for row in range(len(split)):
        split.item(row)
    split.read(range(min(2, len(split))))


REFERENCE = f"datasets/references/{REFERENCES['imagenet256'].file}"


@Door(
    *("reference sets", "the evaluator's .npz files"),
    lambda: np.savez_compressed(placed(REFERENCE), **arrays()),
    *(60, 500, one_of(REFERENCE)),
)
def enter_reference() -> None:
    _, images, _ = open_reference("imagenet256", Path("datasets"))
    _ = images[0 : min(2, len(images))]


def write_images() -> None:
    for kind in ("JPEG", "PNG", "WEBP"):
        Path(kind).write_bytes(archive_files.encoded(archive_files.pixels(0, 24, 31), kind))


@Door("images", "JPEG, PNG and WebP", write_images, 100, 1000, one_of("*"))
def enter_images() -> None:
    for file in sorted(HERE.iterdir()):
        decode(file.read_bytes(), str(file))


TABLE = "table.csv"


def write_image_folder() -> None:
    """Classes in sub-folders, and a table of labels and captions."""
    for number in range(6):
        content = archive_files.encoded(archive_files.pixels(number, 8, 8), "PNG")
        placed(f"images/{'ab'[number % 2]}/{number}.png").write_bytes(content)
    names = sorted(file.relative_to("images") for file in HERE.rglob("*.png"))
    lines = ["file,caption,label", *(f"{name},a {name.stem},{name.parent}" for name in names)]
    Path(TABLE).write_text("\n".join(lines) + "\n")


def damage_image_folder(draw: Random) -> None:
    """Behind the record of a first look, which is of this place."""
    look_at_images()
    one_of("images/*/*", TABLE, "datasets/folder/*")(draw)


def look_at_images() -> None:
    same = {"kind": "folder", "path": "images", "side": 8, "fit": "none", "test_share": 0.5}
    for labels, classes, table in (("folders", 2, None), ("csv", 2, TABLE), ("captions", 6, None)):
        chosen = {"labels": labels, "classes": classes, "labels_csv": table}
        data = FolderData(**same, **chosen, captions_csv=TABLE, seed=0)
        for split in data.open(Path("datasets")).splits.values():
            split.read(range(len(split)))


OWN = "images of one's own, their captions and labels, and the record of a first look"
Door("folders of images", OWN, write_image_folder, 40, 500, damage_image_folder)(look_at_images)

RECORDED = Archive(kind="some", file="some.bin", page="a page", terms="none")
RECORDS = one_of("datasets.lock.json", "datasets/some/*.checked.json")


def write_records() -> None:
    place = placed("datasets/some/some.bin")
    place.write_bytes(b"some bytes")
    os.utime(place, (1, 1))
    enter_records()
    assert {file.name for file in place.parent.iterdir()} == {"some.bin", "some.bin.checked.json"}


def enter_records() -> None:
    found = locate(RECORDED, Path("datasets"))
    Lock(Path("datasets.lock.json")).record("other", FileRecord(found.sha256, 3))


RECORD = "lock files and notes of digests"
Door("records of digests", RECORD, write_records, 60, 500, RECORDS)(enter_records)

# Servers

BODY = b"0123456789" * 20
RESPONSES = {
    "whole": b'HTTP/1.1 200 OK\r\nContent-Length: 200\r\nETag: "one"\r\n\r\n' + BODY,
    "rest": b"HTTP/1.1 206 Partial Content\r\nContent-Length: 190\r\n"
    b'Content-Range: bytes 10-199/200\r\nETag: "one"\r\n\r\n' + BODY[10:],
    "moved": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\n\r\n",
    "beyond": b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n",
}
HEADERS = (
    *(b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: " + b"9" * 400),
    *(b"Content-Length: \xff", b"Content-Range: bytes", b"Content-Range: bytes 10-\xff/200"),
    *(b"ETag: \xff\xfe", b"ETag: " + b"x" * 60_000, b"ETag: \r\n folded"),
    *(b"Transfer-Encoding: chunked", b"Location: ftp://[::1", b"Location: file:///etc/passwd"),
    *(b"Location: \xff", b"no colon", b": x", b"Last-Modified: \xe9"),
    *(b"Content-Encoding: gzip", b"Content-Length: 0x10", b"x: y\r\n" * 300),
)


def write_response() -> None:
    Path("response").write_bytes(RESPONSES["whole"])


def damage_response(draw: Random) -> None:
    kind = draw.choice(list(RESPONSES))
    head, _, body = RESPONSES[kind].partition(b"\r\n\r\n")
    if draw.random() < 0.6:
        lines = head.split(b"\r\n")
        lines[draw.randrange(1, len(lines))] = draw.choice(HEADERS)
        head = b"\r\n".join(lines)
    content = head + b"\r\n\r\n" + body
    Path("response").write_bytes(of_bytes(content, draw) if draw.random() < 0.5 else content)
    if kind in ("rest", "beyond"):
        Path("file.part").write_bytes(BODY[:10])
        Path("file.part.version").write_bytes(flip(b'"one"', draw))


@Door("servers", "answers of HTTP servers", write_response, 60, 800, damage_response)
def enter_server() -> None:
    os.environ["no_proxy"] = "*"
    with answering(Path("response").read_bytes()) as url:
        download(url, Path("file"), "fetch it by hand")


@contextmanager
def answering(content: bytes) -> Iterator[str]:
    """A server that has one answer, and then hangs up."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(content)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.005,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/file"
        finally:
            server.shutdown()
            thread.join()
