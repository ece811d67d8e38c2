"""The declarations of stages: which tasks an experiment has, and what each of them depends on."""

import subprocess
import sys
from functools import reduce

import pytest
import yaml

from ocm_core.cells import cells, parts
from ocm_core.errors import OcmError
from ocm_core.params.compose import active_names, compose
from ocm_core.pipeline import sources
from ocm_core.pipeline.graph import Graph, graph_of, restrict
from ocm_core.pipeline.stage import PHASES, Task, stages
from ocm_core.project import experiment_names
from tests.pipeline.conftest import ROOT

BARE = (
    *("train.timesteps=null", "evaluate.likelihood=null", "evaluate.covariance_error=null"),
    *("evaluate.path_weights=null", "~sample.samplers.ddim"),
)


def variant(*overrides: str) -> Graph:
    return Graph(compose("toy_mog9", overrides))


def only(label: str, *overrides: str) -> Graph:
    """Return the graph of an experiment with one method, sampled in one way."""
    methods = f"sample.samplers.ddpm.methods=[{label}]"
    graph = variant(*BARE, "sample.split=[]", methods, "network.scores=[exact]", *overrides)
    kept = {label: graph.experiment.methods[label]}
    return Graph(graph.experiment.model_copy(update={"methods": kept}))


def test_stages_that_nobody_needs_are_not_in_the_graph() -> None:
    graph = only("beta")
    assert [*map(str, graph.tasks)] == ["encode/all", "sample/all", "mmd/all", "report/all"]


@pytest.mark.parametrize(
    ("baseline", "present"), [("moments", True), ("gaussian", False), ("target", False)]
)
def test_a_head_on_a_table_of_moments_needs_the_moments(baseline: str, present: bool) -> None:
    head = f"++methods.ocm_relative.head={{baseline: {baseline}, link: positive, unit: own}}"
    graph = only("ocm_relative", head)
    assert (Task("moments", "exact") in graph.tasks) == present
    assert (Task("moments", "exact") in graph.inputs[Task("heads", "exact")]) == present


@pytest.mark.parametrize("name", experiment_names())
def test_inputs_come_before_their_readers_and_phases_follow_each_other(name: str) -> None:
    declared = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    graph, phases = graph_of(name), list[int]()
    for place, task in enumerate(graph.tasks):
        assert set(graph.inputs[task]) <= set(graph.tasks[:place]), task
        phase = graph.stage(task).phase
        phases.append(PHASES.index(phase))
        taken = {graph.stage(node).phase for node in graph.inputs[task]} - {phase}
        deps = {str(file).rpartition("/")[2] for file in declared[phase].get("deps", [])}
        assert taken <= deps, task
    assert phases == sorted(phases)


def test_dvc_shows_the_results_of_every_active_experiment() -> None:
    tree = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    for kind, file in (("metrics", "metrics.json"), ("params", "params.yaml")):
        assert {f"reports/{name}/{file}" for name in active_names()} <= set(tree[kind])
    assert (ROOT / "dvc.yaml").read_text().count("\n") <= 300
    assert (ROOT / "dvc.lock").stat().st_size < 60_000


def test_every_cell_is_in_exactly_one_part() -> None:
    experiment = compose("toy_mog9", ["sample.split=[score,method,nfe,seed]"])
    groups = parts(experiment)
    assert "exact-ocm_relative-nfe10-seed0" in groups
    together = [cell for group in groups.values() for cell in group]
    assert sorted(map(repr, together)) == sorted(map(repr, cells(experiment)))
    assert len(set(together)) == len(together)


def test_a_part_depends_on_its_own_methods_only() -> None:
    graph, task = variant("sample.split=[score,method]"), Task("sample", "exact-beta")
    assert graph.inputs[task] == []
    assert "methods.beta" in graph.keys(task)
    assert "methods.ocm_relative" not in graph.keys(task)
    modules = ("stages.sample", "covariance.beta", "networks.mixture", "diffusion.kernels.ddpm")
    assert set(graph.modules(task)) == {f"ocm_core.{module}" for module in modules}


SOLVERS = {
    "unipc": "kind: diffusers, scheduler: UniPCMultistepScheduler",
    "quality": "kind: preset, name: quality, methods: [delta]",
    "likely": "kind: preset, name: likelihood, methods: [beta]",
}


def test_a_part_depends_on_solvers_and_presets_where_it_has_them() -> None:
    keys = {f"++sample.samplers.{label}": how for label, how in SOLVERS.items()}
    added = [f"{key}={{{how}, grids: [{{nfe: [5]}}]}}" for key, how in keys.items()]
    graph = variant("sample.split=[sampler]", "++methods.none={kind: none}", *added)
    prefix = "ocm_core.sampling."
    chosen = {
        task.part: [m.removeprefix(prefix) for m in graph.modules(task) if m.startswith(prefix)]
        for task in graph.of_phase("sample")
    }
    presets = {"quality": ["presets"], "likely": ["presets"]}
    assert chosen == {"ddpm": [], "ddim": [], "unipc": ["diffusers_solver"], **presets}
    assert Task("timesteps", "trained") in graph.inputs[Task("sample", "likely")]
    assert not [t for t in graph.inputs[Task("sample", "quality")] if t.stage == "timesteps"]
    closure = sources.closure(graph.modules(Task("sample", "ddpm")))
    assert "ocm_core.sampling.recipe" in closure
    assert closure.isdisjoint({f"{prefix}presets", f"{prefix}diffusers_solver"})


def test_unknown_names_are_answered_with_the_nearest() -> None:
    graph = graph_of("toy_mog9")
    with pytest.raises(OcmError, match="did you mean 'heads'"):
        graph.find("head", "trained")
    with pytest.raises(OcmError, match="did you mean 'trained'"):
        graph.find("heads", "traind")
    with pytest.raises(OcmError, match="toy_mog9 has no stage 'vae'"):
        graph.find("vae", "all")


def test_every_stage_says_what_it_is_and_in_one_line() -> None:
    for stage in stages().values():
        assert 20 < len(stage.about) <= 100 and stage.about.endswith((".", ":")), stage.name


def test_stages_are_listed_without_slow_packages() -> None:
    heavy = ("zarr", "xarray", "sklearn", "diffusers", "plotly", "scipy")
    code = (
        "import sys; from ocm_core.pipeline.stage import stages\n"
        "assert len(stages()) > 20\n"
        f"print(*(name for name in {heavy} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr


KEYS = ["data", "train.heads", "train.moments.draws", "methods.ocm_relative"]


def test_a_stage_sees_what_it_declares_and_nothing_else() -> None:
    experiment = compose("toy_mog9")
    seen = restrict(experiment, KEYS, "heads")
    assert (seen.name, seen.data) == ("toy_mog9", experiment.data)
    assert seen.train.heads == experiment.train.heads
    assert set(seen.methods) == {"ocm_relative"} and not hasattr(seen, "nonsense")
    for key in ("sample", "train.score", "train.moments.seed", "encode", "evaluate"):
        said = rf"stage 'heads' reads {key} without declaring it.*heads.py"
        with pytest.raises(OcmError, match=said):
            reduce(getattr, key.split("."), seen)
    found = Graph(experiment).values(["train.heads.seed", "data.std"])
    expected = experiment.data.model_dump()["std"], experiment.train.heads.seed
    assert found == dict(zip(("data.std", "train.heads.seed"), expected, strict=True))


def test_what_most_work_waits_for_comes_first() -> None:
    graph = graph_of("imagenet256")
    urgency = graph.urgency
    samples = [task for task in graph.tasks if task.stage == "sample"]
    headless = [task for task in samples if "ocm" not in task.part.split("-")]
    assert headless and headless != samples
    for first in [task for task in graph.tasks if task.stage in ("encode", "heads", "selection")]:
        assert urgency[first] > max(urgency[task] for task in headless), first
    ahead = sorted(headless, key=urgency.__getitem__)
    assert "nfe250" in ahead[-1].part and "nfe10" in ahead[0].part, "long ones before short ones"
    encode, heads = urgency[Task("encode", "1of8")], urgency[Task("heads", "pretrained")]
    assert urgency[Task("fetch_data")] >= encode > heads


def test_data_are_looked_at_before_anything_is_sampled() -> None:
    graph = graph_of("cifar10_ls")
    tasks = [task for task in graph.tasks if task.stage == "sample"]
    assert tasks and all(graph.before(task) == [Task("fetch_data")] for task in tasks)
