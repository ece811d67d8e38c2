"""Every door where bytes come in: what is whole there, how it is damaged, and how it is let in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import chain
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
from ocm_core.datasets._images import decode
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
from tests.datasets.conftest import ARCHIVED, undigested
from tests.datasets.kinds import KINDS
from tests.init.folders import write_stable_diffusion
from tests.latents import tiny as tiny_vae
from tests.metrics.test_published_reference import arrays
from tests.networks.diffusers_cases import PLAIN, model
from tests.store.data import plan, values, write_jobs

from diffusers import DDPMPipeline, DDPMScheduler  # isort: skip

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Door:
    what: str  # was tried, for docs/reliability.md
    build: Callable[[Path], None]  # writes what is whole into a folder
    enter: Callable[[Path], None]  # reads it, as the project does
    short: int  # how many inputs in `make test`
    full: int  # and in `make chaos`
    damage: Callable[[Path, Random], None]


def damage_one_of(*patterns: str) -> Callable[[Path, Random], None]:
    """Damages one file among those that match."""

    def damage(folder: Path, draw: Random) -> None:
        found = sorted(chain.from_iterable(folder.glob(pattern) for pattern in patterns))
        file = draw.choice([path for path in found if path.is_file()])
        file.write_bytes(damage_for(file)(file.read_bytes(), draw))

    return damage


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# Parameters and numbers


def copy_params(folder: Path) -> None:
    """Copy all, and name an experiment."""
    shutil.copytree(ROOT / "params", folder / "params")
    (folder / "experiment").write_text("mnist_latent")


def copy_results(folder: Path) -> None:
    """Copy what a run leaves of an experiment, and commit it."""
    shutil.copytree(ROOT / "reports/toy_mog9", folder / "reports/toy_mog9")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=results"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


def enter_results(folder: Path) -> None:
    """Read them as `ocm report`, `ocm index`, `ocm status` and `ocm compare` do."""
    render(page(read_folder("toy_mog9", folder)))
    index(folder)
    found = compare(folder, "HEAD")
    found.text(everything=True)
    found.tree(everything=True)
    render(comparison(found, everything=True))
    results_state(_graph(), folder / "reports")


@cache
def _graph() -> Graph:
    with inside(ROOT):
        return Graph(compose("toy_mog9"))


def write_active(folder: Path) -> None:
    (folder / "params").mkdir()
    (folder / "params/active.yaml").write_text("# what a bare run makes\nactive: [digits, toy]\n")


def enter_active(folder: Path) -> None:
    with inside(folder):
        active_names()


GROUPS = {  # files that an experiment is composed of
    "mnist_latent": ("experiment/mnist_latent.yaml", "base/images.yaml", "*/small*.yaml"),
    "toy_mog9": ("experiment/toy_mog9.yaml", "base/mixture.yaml"),
    "cifar10_ls_smoke": ("experiment/cifar10_ls.yaml", "preset/smoke.yaml", "base/published.yaml"),
}


def damage_composed(folder: Path, draw: Random) -> None:
    name = draw.choice(list(GROUPS))
    (folder / "experiment").write_text(name)
    damage_one_of(*(f"params/{pattern}" for pattern in GROUPS[name]))(folder, draw)


def enter_composed(folder: Path) -> None:
    """As `ocm status` and the Snakefile do: every job that the files ask for is counted out."""
    name = (folder / "experiment").read_text()
    with inside(folder):
        experiment = compose(name)
        parts(experiment)
        _ = Graph(experiment).tasks


OVERRIDES = (
    "train.heads.learning_rate=1e-3",
    "sample.samplers.ddpm.methods=[beta,ocm_relative]",
    "sample.samplers.ddim.grids=[{nfe: [10, 20], guidance: [1.0]}]",
    "+methods.mine={kind: rademacher, probes: 3}",
    "~report.title",
    "network.width=64",
    "data.layout.per_axis=3",
    "encode.jobs=1",
    "report.title='a title'",
    "schedule.kind=cosine",
)


def write_overrides(folder: Path) -> None:
    copy_params(folder)
    (folder / "overrides").write_text("train.heads.learning_rate=1e-3")


def damage_override(folder: Path, draw: Random) -> None:
    key, equals, value = draw.choice(OVERRIDES).partition("=")
    match draw.randrange(4):
        case 0:
            value = str(draw.choice(ODD_VALUES))[:2000]
        case 1:
            value = draw.choice(("${x}", "${", "[" * 400, "a,b", "range(1,10)", "{a: {b: [", "'"))
        case 2:
            key = draw.choice((key.upper(), f"+{key}", f"++{key}", f"~{key}", f"{key}@x", "", "."))
        case _:
            text = f"{key}{equals}{value}".encode()
            text = draw.choice(BYTE_DAMAGES)(text, draw)
            key, equals, value = text.decode("latin-1"), "", ""
    written = f"{key}{equals}{value}".encode(errors="surrogateescape")
    (folder / "overrides").write_bytes(written)


def enter_overrides(folder: Path) -> None:
    override = (folder / "overrides").read_bytes().decode(errors="surrogateescape")
    with inside(folder):
        Graph(compose("toy_mog9", [override]))


# Artifacts

ARTIFACT = Task("encode", "all")


def write_artifact(folder: Path) -> None:
    with inside(folder):
        key = Key(parameters="a" * 64, sources="", inputs={"fetch_data/all": "b" * 64})
        staged = StagingFolder("toy", ARTIFACT, key)
        staged.prepare()
        for file in (staged.artifact / "sub/one", staged.artifact / "two", staged.outputs / "page"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(file.name)
        staged.finish({"items": 3}, {"sub": "c" * 64})


def enter_artifact(folder: Path) -> None:
    with inside(folder):
        artifacts.checked_folder("toy", ARTIFACT)


def write_store(folder: Path) -> None:
    whole = plan(range(20), dtype="uint8")
    write_jobs(folder, whole, values(20, whole.shape, "uint8"), jobs=2)


def enter_store(folder: Path) -> None:
    split = open_split(sorted(folder.iterdir()), "train")
    split.all()
    split.read(np.array([0, len(split) - 1]))
    _ = split.labels


# Weights


def write_checkpoint(folder: Path) -> None:
    checkpoint = checkpoint_files.tiny("celeba64")
    state = checkpoint_files.weights(checkpoint)
    for name, legacy in (("zipped", False), ("legacy", True)):
        checkpoint_files.write(checkpoint.source(), state, folder / name, legacy)


def damage_checkpoint(folder: Path, draw: Random) -> None:
    """Bytes of either format; or a whole file with a tensor that no published file has."""
    place = folder / draw.choice(("zipped", "legacy"))
    if draw.random() < 0.6:
        place.write_bytes(of_bytes(place.read_bytes(), draw))
    else:
        checkpoint = checkpoint_files.tiny("celeba64")
        state: dict[Any, Any] = dict(checkpoint_files.weights(checkpoint))
        key = draw.choice(list(state))
        state[key] = draw.choice(ODD_TENSORS)(state[key])
        content = checkpoint_files.WRITERS[checkpoint.source().layout](state)
        torch.save(content, place, _use_new_zipfile_serialization=place.name == "zipped")
    for name in {"zipped", "legacy"} - {place.name}:
        (folder / name).unlink()


ODD_TENSORS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: torch.nested.nested_tensor([x, x]),
    lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    lambda x: x.to_sparse(),
    lambda x: x.reshape(-1, 1).to_sparse_csr(),
    lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    lambda x: x.to("meta"),
    lambda x: x.double(),
    lambda x: x.bfloat16(),
    lambda x: x.to(torch.complex64),
    lambda x: torch.zeros(()).expand(10**9),
    lambda x: torch.zeros(()).expand(x.shape),
    lambda x: torch.nn.Parameter(x),
    lambda x: x[..., :0],
    lambda x: [x],
    lambda x: {"deep": {"deeper": x}},
    lambda x: "a string",
    lambda x: None,
)


def enter_checkpoint(folder: Path) -> None:
    checkpoint = checkpoint_files.tiny("celeba64")
    for place in ("zipped", "legacy"):
        if (folder / place).exists():
            target = folder / f"{place}_here" / checkpoint.source().file
            target.parent.mkdir()
            shutil.copyfile(folder / place, target)
            fetch(checkpoint, target.parent, Lock(folder / f"{place}.lock.json"))


@cache
def denoiser() -> Denoiser:
    return api.wrap(model(PLAIN), DDPMScheduler(num_train_timesteps=40))


def write_heads(folder: Path) -> None:
    bare = denoiser()
    heads = {
        "ocm": CovarianceHead(bare.network.make_head("simple")),
        "npr": CovarianceHead(bare.network.make_head("complex"), torch.ones(41), "tapered"),
    }
    save_heads(replace(bare, heads=heads), folder / "heads.safetensors")


def enter_heads(folder: Path) -> None:
    loaded = load_heads(denoiser(), folder / "heads.safetensors")
    for label in loaded.heads.keys() & {"ocm", "npr"}:
        api.sample(loaded, (3, 8, 8), label, steps=2, count=1)


def write_diffusers(folder: Path) -> None:
    DDPMPipeline(model(PLAIN), DDPMScheduler()).save_pretrained(folder)


def enter_diffusers(folder: Path) -> None:
    api.load(folder)


def write_vae(folder: Path) -> None:
    tiny_vae.saved(folder)


def enter_vae(folder: Path) -> None:
    Vae.load(folder)


# Data


def write_archives(*kinds: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for kind in kinds:
            data = KINDS[kind].block
            place = folder / kind / "datasets" / data.kind  # type: ignore[attr-defined]
            place.mkdir(parents=True)
            KINDS[kind].write(place)

    return write


def damage_archives(folder: Path, draw: Random) -> None:
    """One data set's; the others are whole, and opening them again would only take time."""
    kept = draw.choice(sorted(folder.iterdir()))
    for place in set(folder.iterdir()) - {kept}:
        shutil.rmtree(place)
    damage_one_of("*/datasets/*/*")(folder, draw)


def enter_archives(folder: Path) -> None:
    for place in folder.iterdir():
        data = KINDS[place.name].block
        _without_digests(data.kind)
        opened = data.open(place / "datasets")
        for split in opened.splits.values():
            split.read(range(len(split)))


def _without_digests(kind: str) -> None:
    """Tiny archives cannot have the digests of the real ones; every other check stays."""
    module = import_module(f"ocm_core.datasets.{kind}")
    if kind in ARCHIVED:
        module.ARCHIVES = {  # type: ignore[attr-defined]
            name: undigested(archive) for name, archive in module.ARCHIVES.items()
        }


def write_lmdb(folder: Path) -> None:
    """Small images in two overflow pages, and enough of them for a tree of pages."""
    content = archive_files.encoded(archive_files.pixels(0, 8, 9), "PNG")
    images = {f"{7919 * i:040x}": content + bytes(5000) for i in range(80)}
    place = folder / "lsun_bedroom" / "datasets" / "lsun_bedroom" / "bedroom_val_lmdb.zip"
    archive_files.lsun(place, images)


def enter_lmdb(folder: Path) -> None:
    data = LsunBedroomData(kind="lsun_bedroom", splits=["test"])
    place = folder / "lsun_bedroom" / "datasets"
    _without_digests(data.kind)
    split = data.open(place).splits["test"]
    for row in range(len(split)):
        split.images.content(row)
    split.read(range(min(2, len(split))))


def write_reference(folder: Path) -> None:
    place = folder / "datasets" / "references" / REFERENCES["imagenet256"].file
    place.parent.mkdir(parents=True)
    np.savez_compressed(place, **arrays())


def enter_reference(folder: Path) -> None:
    opened = open_reference("imagenet256", folder / "datasets")
    _ = opened.images[0 : min(2, len(opened.images))]


def write_images(folder: Path) -> None:
    for kind in ("JPEG", "PNG", "WEBP"):
        content = archive_files.encoded(archive_files.pixels(0, 24, 31), kind)
        (folder / kind).write_bytes(content)


def enter_images(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        decode(file.read_bytes(), str(file))


def write_image_folder(folder: Path) -> None:
    """Classes in sub-folders, and a table of labels and captions."""
    for number in range(6):
        file = folder / "images" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = archive_files.encoded(archive_files.pixels(number, 8, 8), "PNG")
        file.write_bytes(content)
    names = sorted(file.relative_to(folder / "images") for file in folder.rglob("*.png"))
    lines = ["file,caption,label", *(f"{name},a {name.stem},{name.parent}" for name in names)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def damage_image_folder(folder: Path, draw: Random) -> None:
    """Behind the record of a first look, which is of this place."""
    enter_image_folder(folder)
    damage_one_of("images/*/*", "table.csv", "datasets/folder/*")(folder, draw)


def enter_image_folder(folder: Path) -> None:
    with inside(folder):
        for labels, classes in (("folders", 2), ("csv", 2), ("captions", 6)):
            table = "table.csv" if labels == "csv" else None
            data = FolderData(
                kind="folder",
                path="images",
                side=8,
                channels=3,
                fit="none",
                labels=labels,
                classes=classes,
                labels_csv=table,
                captions_csv="table.csv",
                test_share=0.5,
                seed=0,
                skip_unreadable=False,
            ).open(Path("datasets"))
            for split in data.splits.values():
                split.read(range(len(split)))


def write_text_encoder(folder: Path) -> None:
    write_stable_diffusion(folder)


def enter_text_encoder(folder: Path) -> None:
    found = describe(folder).text
    assert found is not None
    _ = found.digest
    TextEncoder.load(folder)(["a cat", ""])


RECORDED = Archive(kind="some", file="some.bin", page="a page", terms="none")


def write_records(folder: Path) -> None:
    place = folder / "datasets" / "some" / "some.bin"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"some bytes")
    os.utime(place, (1, 1))
    enter_records(folder)
    assert {file.name for file in place.parent.iterdir()} == {"some.bin", "some.bin.checked.json"}


def enter_records(folder: Path) -> None:
    found = locate(RECORDED, folder / "datasets")
    Lock(folder / "datasets.lock.json").record("other", FileRecord(found.sha256, 3))


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


def write_response(folder: Path) -> None:
    (folder / "response").write_bytes(RESPONSES["whole"])


def damage_response(folder: Path, draw: Random) -> None:
    kind = draw.choice(list(RESPONSES))
    head, _, body = RESPONSES[kind].partition(b"\r\n\r\n")
    if draw.random() < 0.6:
        lines = head.split(b"\r\n")
        lines[draw.randrange(1, len(lines))] = draw.choice(HEADERS)
        head = b"\r\n".join(lines)
    content = head + b"\r\n\r\n" + body
    (folder / "response").write_bytes(of_bytes(content, draw) if draw.random() < 0.5 else content)
    if kind in ("rest", "beyond"):
        (folder / "file.part").write_bytes(BODY[:10])
        (folder / "file.part.version").write_bytes(flip(b'"one"', draw))


def enter_server(folder: Path) -> None:
    os.environ["no_proxy"] = "*"
    with answering((folder / "response").read_bytes()) as url:
        download(url, folder / "file", "fetch it by hand")


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


DOORS = {
    "composed files": Door(
        "the files of params/, composed", copy_params, enter_composed, 12, 200, damage_composed
    ),
    "results": Door(
        "reports/NAME/*, read as `ocm report`, `index`, `status` and `compare` do",
        *(copy_results, enter_results, 30, 400),
        damage_one_of("reports/toy_mog9/*"),
    ),
    "active experiments": Door(
        "params/active.yaml",
        *(write_active, enter_active, 40, 300),
        damage_one_of("params/active.yaml"),
    ),
    "overrides": Door(
        "overrides of parameters, as typed",
        *(write_overrides, enter_overrides, 12, 200),
        damage_override,
    ),
    "manifests": Door(
        "manifests of artifacts",
        *(write_artifact, enter_artifact, 200, 2500),
        damage_one_of("**/manifest.json"),
    ),
    "stores": Door(
        "Zarr stores: metadata and shards",
        *(write_store, enter_store, 100, 1600),
        damage_one_of("*/train.zarr/**/*"),
    ),
    "checkpoints": Door(
        "PyTorch files, both formats, and tensors that no published file has",
        *(write_checkpoint, enter_checkpoint, 40, 500),
        damage_checkpoint,
    ),
    "heads": Door(
        "files of covariance heads",
        *(write_heads, enter_heads, 60, 900),
        damage_one_of("heads.safetensors"),
    ),
    "diffusers folders": Door(
        "a UNet2DModel and its scheduler, as diffusers saves them",
        *(write_diffusers, enter_diffusers, 40, 600),
        damage_one_of("*/*.json", "*/*.safetensors"),
    ),
    "text encoders": Door(
        "a CLIPTextModel and its tokenizer beside a UNet2DConditionModel",
        *(write_text_encoder, enter_text_encoder, 20, 300),
        damage_one_of("t*/*.json", "t*/*.safetensors"),
    ),
    "autoencoders": Door(
        "an AutoencoderKL, as diffusers saves it", write_vae, enter_vae, 40, 500, damage_one_of("*")
    ),
    "archives": Door(
        "archives of data sets: tar, tar in tar, tar.gz, packages of npm, zip, npz in zip",
        write_archives(
            *("cifar10", "cifar10_package", "mnist_original", "celeba64"),
            *("imagenet64_png", "imagenet64_npz", "imagenet256"),
        ),
        enter_archives,
        30,
        1000,
        damage_archives,
    ),
    "LMDB": Door(
        "databases of LSUN", write_lmdb, enter_lmdb, 40, 800, damage_one_of("*/datasets/*/*.zip")
    ),
    "reference sets": Door(
        "the evaluator's .npz files",
        *(write_reference, enter_reference, 60, 500),
        damage_one_of("datasets/references/*.npz"),
    ),
    "images": Door("JPEG, PNG and WebP", write_images, enter_images, 100, 1000, damage_one_of("*")),
    "folders of images": Door(
        "images of one's own, their captions and labels, and the record of a first look",
        *(write_image_folder, enter_image_folder, 40, 500),
        damage_image_folder,
    ),
    "records of digests": Door(
        "lock files and notes of digests",
        *(write_records, enter_records, 60, 500),
        damage_one_of("datasets.lock.json", "datasets/some/*.checked.json"),
    ),
    "servers": Door(
        "answers of HTTP servers", write_response, enter_server, 60, 800, damage_response
    ),
}
