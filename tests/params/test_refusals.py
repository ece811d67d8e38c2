"""Bad parameters are refused with the file or override, the full key, what was expected."""

import re
from pathlib import Path
from time import process_time

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.yaml_files import read_yaml
from ocm_core.params.compose import active_names, compose, validate

NFE = "evaluate.likelihood.nfe_by_method"
BEST = "train.selection={kind: best_frechet, samples: 2, batch_size: 2, nfe: %s}"
MNIST_VAE = "encode.latent.vae.config"
PATHS = "evaluate.path_weights"
DDPM, DDIM = "sample.samplers.ddpm", "sample.samplers.ddim"
MATCHED, TIMESTEPS = "sample.samplers.matched", f"{DDIM}.timesteps"
PRESET = "+sample.samplers.x={kind: preset, name: %s, methods: [%s], grids: [{nfe: [5]}]}"
BY_PROBES = "++evaluate.likelihood.timesteps.even={kind: optimal, of: rademacher_100}"
TASK = "evaluate.restoration.tasks={a: {operator: {kind: %s}, sigma: %s}}"
LISTED = f"++{TIMESTEPS}={{kind: listed, values: "
CODEC = "++evaluate.codec={methods: [%s]}"


def refused(name: str, *overrides: str) -> str:
    with pytest.raises(OcmError) as refusal:
        compose(name, overrides)
    return str(refusal.value)


REFUSED: dict[str, list[tuple[str, str]]] = {  # overrides, and what is said of them
    "toy_mog9": [
        ("+sample.cuont=3", "sample.cuont: 'cuont' is unknown; did you mean 'count'?"),
        ("+evaluate.mdm={}", "evaluate.mdm: 'mdm' is unknown; did you mean 'mmd'?"),
        ("schedule.kind=linaer", "schedule.kind: 'linaer' is unknown; did you mean 'linear'"),
        ("network.scores=[true]", "network.scores.0: True is unknown"),
        ("network.scores=[pretrained]", "network.scores.0: 'pretrained' is unknown"),
        ("train.score.iterations=x", "train.score.iterations: Input should be a valid"),
        ("data.layout.per_axis=0", "data.layout.per_axis: Input should be greater"),
        ("evaluate.mmd.bandwidths=[]", "evaluate.mmd.bandwidths: List should have"),
        (f"{DDPM}.grids=[{{nfe: [1001]}}]", f"{DDPM}.grids: nfe = 1001 is more than"),
        (f"{DDIM}.methods=[beta]", f"{DDIM}.methods: 'beta' is defined for ddpm only"),
        (f"{DDPM}.methods=[ocm_relativ]", f"{DDPM}.methods: 'ocm_relativ' is unknown"),
        (f"{DDIM}.grids=[{{nfe: [9], guidance: [2.0]}}]", "sample.samplers: guidance"),
        (f"{DDPM}.clip_final_sigma=1.0", f"{DDPM}.clip_final_sigma: in grey levels"),
        ("train.score=null", "train.score: null, but the experiment trains it"),
        ("+evaluate.distances={}", "evaluate.distances: measured in a space of features"),
        ("methods.rademacher_10.probes=0", "methods.rademacher_10: covariance method"),
        ("methods.ocm_relative.kind=ocn", "methods.ocm_relative: "),
        (CODEC % "beta", ": files are of images, and the data are points or latents"),
        (f"{PATHS}.nfe=[1001]", f"{PATHS}.nfe: 1001 is more than schedule.steps"),
        (f"{PATHS}.methods=[bets]", f"{PATHS}.methods: 'bets' is unknown"),
        (f"{PATHS}.methods=[delta]", f"{PATHS}.methods: 'delta' "),
        ("network.family=pairs", "network.family: 'pairs' is for data.kind: double_wells"),
        ("network.depth=100000", "network.depth: "),
        ("head.sizes.width=100000", "head.sizes.width: "),
        ("data.train_size=1000000000", "data.train_size: "),
    ],
    "digits": [
        ("+evaluate.mmd={}", "evaluate.mmd: for points"),
        (f"{MATCHED}.kind=ddim", f"{MATCHED}.order: 'matched' is for ddpm; for ddim use"),
        (f"{MATCHED}.methods=[npr]", f"{MATCHED}.methods: 'npr' has no spectrum, which"),
        (PRESET % ("photographs", "ocm"), " (nfe = 5).methods: 'ocm' has no spectrum"),
        (PRESET % ("qualty", "delta"), ".name: 'qualty' is unknown; did you mean 'quality'"),
        (PRESET % ("quality", "beta"), " (nfe = 5).methods: 'beta' is defined for ddpm only"),
        (
            PRESET % ("likelihood", "rademacher_100"),
            " (nfe = 5).timesteps: train.timesteps.methods",
        ),
        (f"+{DDPM}.order=ipndm", ": 'ipndm' is for ddim; for ddpm use 1, 2 or 3"),
        (f"{DDIM}.kind=ddmi", ": 'ddmi' is unknown"),
        (f"+{DDIM}.eta=2.0", ": input should be less than"),
        (f"+{DDPM}.eta=0.5", ": extra inputs are not permitted; the options of ddpm are: none"),
        (f"{TIMESTEPS}=even", ": Input should be a valid dictionary"),
        (f"{TIMESTEPS}.kind=evne", ": 'evne' is unknown; did you mean 'even'"),
        (f"{TIMESTEPS}={{kind: power}}", ".exponent: missing"),
        (
            f"++{TIMESTEPS}={{kind: power, exponent: 2.0, first: 1000}}",
            ".first: 1000; expected a timestep",
        ),
        (BY_PROBES, ": train.timesteps.methods: 'rademacher_100' is unknown"),
        ("train.timesteps.points=1001", ": 1001 is more than schedule.steps"),
        ("train.timesteps.methods=[ocm_relative, analytic+klt, delta]", ": 'delta' is not defined"),
        ("evaluate.denoising.methods=[beta]", ": 'beta' is no estimate of Cov"),
        ("evaluate.denoising.methods=[lanczos]", ": 'lanczos' is no estimate of Cov"),
        ("evaluate.denoising.methods=[ocn]", ": 'ocn' is unknown; did you mean 'ocm'"),
        ("evaluate.denoising.sigmas=[0.5, 0.001]", ": sigma[1] = 0.001"),
        ("evaluate.denoising.sigmas=[0.0]", ".0: Input should be greater than 0"),
        ("evaluate.restoration.methods=[beta]", ": 'beta' is no estimate of Cov"),
        ("evaluate.restoration.methods=[ocn]", ": 'ocn' is unknown; did you mean 'ocm'"),
        ("evaluate.restoration.algorithms=[kalman]", ": kalman is there for each of `methods`"),
        ("evaluate.restoration.algorithms=[ddrm]", ".0: 'ddrm' is unknown"),
        ("evaluate.restoration.draws=20", ": 20; 19, 39, … have intervals of 90 %"),
        ("evaluate.restoration.nfe=[2000]", ": 2000 is more than schedule.steps = 1000"),
        (TASK % ("haze", 0.1), ".a.operator.kind: 'haze' is unknown"),
        (TASK % ("denoising", 0.0), ".a.sigma: Input should be greater than 0"),
        (CODEC % "ocm_relative+dct", ".methods: method 'ocm_relative+dct': its Σ is neither"),
        (CODEC % "lanczos", ".methods: method 'lanczos' has no density"),
        (CODEC % "betta", ".methods: 'betta' is unknown; did you mean 'beta'"),
        (
            "methods.kdct={head: {baseline: moments}}",
            ".head.baseline: it is relative to its spectrum",
        ),
        (
            "methods.kdct={head: {fit: solve, link: positive}}",
            ".head.link: 'positive' is not linear",
        ),
        (
            "methods.kdct={head: {fit: solve, unit: root}}",
            ".head.unit: 'root' is for heads that are",
        ),
        (f"+{PATHS}={{methods: [beta], nfe: [5]}}", f"{PATHS}: the density is known of"),
        ("features.space=efficientnet_lite1", "features.space: 'efficientnet_lite1' is"),
        ("evaluate.distances.blocks=20", "evaluate.distances.blocks: with 3 seeds"),
        ("evaluate.distances.blocks=1", "evaluate.distances.blocks: Input should be greater"),
        ("+evaluate.score_loss={images: 1, batch_size: 8}", "evaluate.score_loss.images"),
        (BEST % "null", "train.selection: chooses among kept heads"),
        ("train.classifier.precision=bfloat16", "train.classifier.precision: 'bfloat16'"),
        (f"{NFE}={{rademacher_100: [7]}}", f"{NFE}.rademacher_100: [7]: not all"),
        ("encode.jobs=1000000000", "encode.jobs: "),
        ("schedule.steps=1000000000", "schedule.steps: "),
        ("train.heads.learning_rate=inf", "train.heads.learning_rate: "),
        ("train.heads.weight_decay=inf", "train.heads.weight_decay: "),
        ("sample.samplers.ddpm.clip_final_sigma=inf", "sample.samplers.ddpm.clip_final_sigma: "),
        ("network.time.scale=nan", "network.time.scale: "),
        ("network.config.blocks_per_level=100000", "network: configuration of ddpm_unet"),
    ],
    "mnist_latent": [
        ("train.vae.precision=bfloat16", ": 'bfloat16' is unknown"),
        ("network.config.depth=100000", "network: configuration of dit: depth"),
        (f"{MNIST_VAE}.latent_channels=x", f"{MNIST_VAE}.latent_channels: "),
    ],
    "imagenet64": [
        ("data.splits=[train]", "evaluate.likelihood: measured on test images"),
    ],
    "cifar10_ls": [
        ("schedule.steps=500", "network: cifar10_ls was trained with schedule"),
        ("network.checkpoint.name=cifar", "network: checkpoint: 'cifar' is unknown"),
    ],
}


@pytest.mark.parametrize(
    ("name", "override", "line"), [(name, *case) for name in REFUSED for case in REFUSED[name]]
)
def test_a_bad_value_is_refused_with_its_key(name: str, override: str, line: str) -> None:
    """Where the line does not say which key it is about, it is that of the override."""
    message = refused(name, override)
    where = f"override {override!r}"
    line = line if line[0].isalpha() else override.lstrip("+").partition("=")[0] + line
    assert message.startswith((f"{where}: {line}", f"params/experiment/{name}.yaml: {line}"))
    assert "\n" not in message


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["train.heads.keep_every=300", BEST % "null"], "300 does not divide iterations = 800"),
        (["train.heads.keep_every=400", BEST % 1], "train.selection.nfe: in one step all heads"),
        (["sample.seeds=[0]", "evaluate.distances.blocks=400"], "400 blocks of 600 samples"),
        (["features=null"], "features: null, but images are compared in some space"),
        ([f"{TIMESTEPS}.kind=optimal"], "train.timesteps.methods: 'delta' is unknown"),
        (["train.timesteps=null"], "'optimal' needs train.timesteps, which is null"),
        (["train.timesteps.methods=[ocn]"], "train.timesteps.methods: 'ocm_relative' is unknown"),
        ([f"{LISTED}[[3, 2]]}}"], "[3, 2]; expected ascending, up to schedule.steps = 1000"),
        ([f"{LISTED}[[3, 5]]}}"], "none of the lists has 5 timesteps; add one"),
    ],
)
def test_values_that_do_not_go_together(overrides: list[str], line: str) -> None:
    assert line in refused("digits", *overrides)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("trian.heads.seed=1", "'trian.heads.seed' is unknown; did you mean 'train.heads.seed'?"),
        ("data.kid=1", "'data.kid' is unknown; did you mean 'data.kind'?"),
        ("~train.heads.sede", "did you mean 'train.heads.seed'?"),
        ("nonsense", "expected key=value"),
        ("sample.seeds=[0", "override 'sample.seeds=[0': "),
    ],
)
def test_a_bad_override_is_refused(override: str, reason: str) -> None:
    message = refused("toy_mog9", override)
    assert message.startswith(f"override {override!r}: ") and reason in message


def test_valid_keys_are_listed_once_and_defaults_are_among_them() -> None:
    listed = refused("toy_mog9", "train.heads.learnin_rate=1").rpartition("valid: ")[2].split(", ")
    assert {"train.heads.learning_rate", "train.heads.accumulate"} <= set(listed)
    assert len(listed) == len(set(listed))


def test_all_problems_are_named_at_once() -> None:
    message = refused("toy_mog9", "+head.lnik=x", "train.heads.ema=1.5", "schedule.kind=cubic")
    keys = [line.split(": ")[1] for line in message.splitlines()]
    assert sorted(keys) == ["head.lnik", "schedule.kind", "train.heads.ema"]


def test_an_unknown_name_gets_close_matches() -> None:
    for wrong, near in {"toy_mog8": "toy_mog9", "cifar10_fast": "cifar10_ls_fast"}.items():
        assert f"did you mean '{near}'" in refused(wrong)


GROUP, OVERLAY = "base/digits.yaml", "experiment/digits.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        (OVERLAY, None, "", "expected a mapping of parameters, found nothing"),
        (OVERLAY, None, "# only a comment\n", "expected a mapping of parameters, found nothing"),
        (OVERLAY, None, "- digits\n", "expected a mapping of parameters, found a list"),
        (GROUP, "# @package _global_", "#", "expected `# @package _global_` as its first line"),
        (GROUP, "ema: 0.99 ", "eam: 0.99 ", "train.classifier.eam: 'eam' is unknown; did you me"),
        (GROUP, "rate: 4e-3", "rate: 12:30:45", "train.score.learning_rate: expected a decimal"),
        (OVERLAY, "count: 600", "count: ???", "sample.count: '???' is no value"),
        (GROUP, "iterations: 800", "iterations: ???", "expected valid YAML"),  # in { }
        (OVERLAY, "count: 600", "count: 0600", "sample.count: expected a decimal number, found"),
        (GROUP, "iterations: 800", "iterations: 800.5", "train.heads.iterations: Input should be"),
        (OVERLAY, "count: 600", "count: -1", "sample.count: Input should be greater"),
    ],
)
def test_the_right_file_is_blamed(
    project: Path, file: str, old: str | None, new: str, line: str
) -> None:
    path = project / file
    text = path.read_text()
    assert old is None or old in text
    path.write_text(new if old is None else text.replace(old, new, 1))
    for name in ("digits", "digits_cosine"):
        lines = refused(name).splitlines()
        assert any(problem.startswith(f"params/{file}: {line}") for problem in lines)


def test_a_file_is_blamed_for_what_it_holds_and_no_other(project: Path) -> None:
    (project / "experiment/other.yaml").write_text("sample: { cuont: ??? }\n")
    assert compose("digits").name == "digits"
    (project / "preset/smoke.yaml").write_text("sample.count: 0\n")
    assert refused("digits_smoke").startswith("params/preset/smoke.yaml: sample.count: ")
    (project / GROUP).write_text("- a\n")
    assert "base/digits" in refused("digits")


def test_broken_files(tmp_path: Path, project: Path) -> None:
    file = tmp_path / "x.yaml"
    for text, reason in {"a: [": "expected valid YAML", "- a": "expected a mapping"}.items():
        file.write_text(text)
        with pytest.raises(OcmError, match=rf"x\.yaml: {reason}"):
            read_yaml(file)
    with pytest.raises(OcmError, match=r"y\.yaml: no such file"):
        read_yaml(tmp_path / "y.yaml")
    (project / "active.yaml").write_text("active: digits\n")
    with pytest.raises(OcmError, match=r"active\.yaml: active: expected a list"):
        active_names()


def test_tags_of_unions_are_no_part_of_the_key() -> None:
    tree = compose("toy_mog9").model_dump()
    tree["data"]["layout"]["spacing"] = "wide"
    with pytest.raises(OcmError, match=r"^x\.yaml: data\.layout\.spacing: "):
        validate(tree, "x.yaml")


def test_a_grid_of_too_many_samples() -> None:
    grids = f"sample.samplers.ddpm.grids=[{{nfe: {[*range(1, 301)]}}}]".replace(" ", "")
    seeds = f"sample.seeds={[*range(16)]}".replace(" ", "")
    message = refused("toy_mog9", grids, seeds)
    assert re.search(r"sample: .* combinations .* at most 20000", message)


@pytest.mark.parametrize("bomb", ["aliases", "itself"])
def test_few_lines_that_stand_for_many_values(project: Path, bomb: str) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    (project / GROUP).write_text("\n".join(lines) if bomb == "aliases" else "a: &a [*a]")
    assert re.search(r"base/digits\.yaml: .* aliases written out", refused("digits"))


def test_an_override_that_is_a_book() -> None:
    begun = process_time()
    assert "longer than 2000 characters" in refused("toy_mog9", f"report.title={'[' * 100_000}")
    assert process_time() - begun < 2.0
