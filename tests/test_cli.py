"""What holds for every command: true help, exit codes, JSON, and a start without waiting."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from ocm_core.cli import EXIT_CODES, _parser, all_commands, main

ROOT = Path(__file__).parents[1]
MAIN = "from ocm_core.cli import main; sys.exit(main())"
SAMPLE = "sample --method ocm --steps 2"
NAMES = [*all_commands()]


def examples() -> list[str]:
    lines = [
        line
        for command in all_commands().values()
        for line in command.EXAMPLES.splitlines()
        if line
    ]
    return [line.strip().partition("   ")[0] for line in lines]


def test_every_command_has_an_example() -> None:
    assert {line.split()[1] for line in examples()} == set(NAMES)


@pytest.mark.parametrize("example", examples())
def test_examples_are_command_lines(example: str) -> None:
    program, *arguments = shlex.split(example, comments=True)
    assert program == "ocm"
    command = _parser().parse_args(arguments).command
    assert command.__name__ == f"ocm_core.commands.{arguments[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_what_it_does_examples_and_exit_codes(name: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert f"  ocm {name}" in said.partition("examples:")[2]
    assert EXIT_CODES in said
    width = max(map(len, said.splitlines()))
    assert width <= 100


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sampel"],
        ["params"],
        ["sample", "--method", "ocm", "--steps", "10"],
        ["sample", "digits", "--model", "x", "--method", "ocm", "--steps", "10"],
        ["sample", "digits", "--method", "ocm", "--steps", "0"],
        ["sample", "digits", "--method", "ocm", "--steps", "10", "--seed", "-1"],
        ["run", "score", "digits", "--device", "tpu"],
        ["run", "score", "digits", "--threads", "none"],
    ],
    ids=" ".join,
)
def test_a_mistake_in_the_command_line_is_a_2(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: ocm" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["params", "status", "verify", "doctor", SAMPLE])
def test_an_unknown_experiment_is_a_1_and_one_message(command: str, capsys) -> None:
    assert main([*command.split(), "digitz"]) == 1
    said = capsys.readouterr()
    assert "'digitz' is unknown; did you mean 'digits'?" in said.err
    assert said.err.startswith("ocm: ") and not said.out


def test_the_environment_is_checked_as_what_is_typed(monkeypatch, capsys) -> None:
    monkeypatch.setenv("OCM_DEVICE", "tpu")
    with pytest.raises(SystemExit):
        main(["run", "score", "digits"])
    assert "'tpu' is unknown" in capsys.readouterr().err


def test_parameters_as_json_are_the_parameters(capsys) -> None:
    assert main(["params", "digits", "sample.count=7", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["name"], tree["sample"]["count"]) == ("digits", 7)


def test_what_is_not_there_is_missing_and_different(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("ocm_core.pipeline.artifacts.ROOT", tmp_path)
    assert main(["status", "toy_mog9", "--json"]) == 0
    states = json.loads(capsys.readouterr().out)["toy_mog9"]
    states.pop("results")  # they are committed
    assert set(states.values()) == {"missing"}
    assert main(["verify", "toy_mog9", "--json"]) == 1
    differences = json.loads(capsys.readouterr().out)
    assert len(differences) == len(states)
    assert all("no such artifact" in line for line in differences)


def test_the_version_is_that_of_the_package(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"ocm {version('ocm-core')}\n"


def test_the_command_starts_without_what_takes_its_time() -> None:
    listed = "import sys, ocm_core.cli as cli; cli.all_commands(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert "ocm_core.commands.sample" in loaded
    assert not loaded & {"torch", "numpy", "pydantic", "yaml", "tqdm", "hydra"}


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = "import sys; from ocm_core.cli import main; sys.exit(main(['status', 'digits_full']))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[OSError], None]:
    """Let a command fail with an error of the system."""

    def fail_with(error: OSError) -> None:
        def fails(arguments: object) -> int:
            raise error

        monkeypatch.setattr("ocm_core.commands.index.run", fails)

    return fail_with


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "a/b: Read-only file system"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on "),
    ],
)
def test_a_file_that_cannot_be_written_is_named(error, message, failing, capsys) -> None:
    failing(error)
    assert main(["index"]) == 1
    assert capsys.readouterr().err.startswith(f"ocm: {message}")


def test_a_dangling_link_is_named(failing, tmp_path: Path, capsys) -> None:
    link = tmp_path / "artifacts"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(OSError) as raised:
        (link / "digits").mkdir(parents=True, exist_ok=True)
    failing(raised.value)
    assert main(["index"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ocm: {link}: a link to {tmp_path / 'gone'}, which does not exist")


def test_a_bug_keeps_its_traceback(failing) -> None:
    failing(FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"))
    with pytest.raises(FileNotFoundError):
        main(["index"])


def test_another_checkout_runs_its_own_code(tmp_path: Path) -> None:
    """As in the copies of the repository that DVC makes for experiments."""
    shutil.copytree(
        ROOT / "ocm_core", tmp_path / "ocm_core", ignore=shutil.ignore_patterns("__py*")
    )
    command = tmp_path / "ocm_core/commands/networks.py"
    command.write_text(
        command.read_text() + "\n\ndef run(arguments):\n    print(__file__)\n    return 7\n"
    )
    program = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]; {MAIN}"]
    done = subprocess.run(
        [*program, "networks"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (7, str(command.resolve())), done.stderr
