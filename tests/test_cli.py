"""What holds for every command: true help, exit codes, JSON, and a start without waiting."""

import errno
import json
import logging
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ocm_core import commands
from ocm_core.cli import EXIT_CODES, _parser, all_commands, main
from ocm_core.commands import COMMANDS, run

ROOT = Path(__file__).parents[1]
SAMPLE = "sample --method ocm --steps 2"
EXAMPLES = {
    name: re.findall(r"^ +(ocm .*?)(?: {3}.*)?$", run.__doc__.partition("examples:")[2], re.M)
    for name, (run, _) in all_commands().items()
}


def leaves(code: int, *arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == code


def python(program: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_shows_what_it_does_examples_and_exit_codes(name: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(commands, "split_name", str)  # `mine` is nobody's yet
    leaves(0, name, "--help")
    said = capsys.readouterr().out
    assert EXIT_CODES in said and max(map(len, said.splitlines())) <= 100
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        assert example in said.partition("examples:")[2]
        program, *arguments = shlex.split(example, comments=True)
        assert (program, arguments[0]) == ("ocm", name)
        assert _parser().parse_args(arguments).run is COMMANDS[name][0]


MISTAKES = [
    *("", "sampel", "params", "run score digits --device tpu", "run score digits --threads none"),
    *("sample --method ocm --steps 10", "sample digits --model x --method ocm --steps 10"),
    *("sample digits --method ocm --steps 0", "sample digits --method ocm --steps 10 --seed -1"),
]


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_in_the_command_line_is_a_2(words: str, capsys) -> None:
    leaves(2, *words.split())
    assert "usage: ocm" in capsys.readouterr().err


def test_the_environment_is_checked_and_the_version_said(monkeypatch, capsys) -> None:
    monkeypatch.setenv("OCM_DEVICE", "tpu")
    leaves(2, "run", "score", "digits")
    assert "'tpu' is unknown" in capsys.readouterr().err
    leaves(0, "--version")
    assert capsys.readouterr().out == f"ocm {version('ocm-core')}\n"


@pytest.mark.parametrize("command", ["params", "status", "verify", "doctor", SAMPLE])
def test_an_unknown_experiment_is_a_1_and_one_message(command: str, capsys) -> None:
    assert main([*command.split(), "digitz"]) == 1
    said = capsys.readouterr()
    assert "'digitz' is unknown; did you mean 'digits'?" in said.err
    assert said.err.startswith("ocm: ") and not said.out


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


def test_the_command_starts_without_what_takes_its_time() -> None:
    done = python("import sys, ocm_core.cli as cli; cli.all_commands(); print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "ocm_core.commands.sample" in loaded
    assert not loaded & {"torch", "numpy", "pydantic", "yaml", "tqdm", "hydra"}


LARGE = {"torch", "diffusers", "hydra", "zarr", "sklearn", "transformers", "scipy.stats"}
WRONG = [
    *("run heads gone", "sample gone --method ocm --steps 5", "export gone to", "doctor gone"),
    *("run gone digits", "report gone", "status gone", "params gone"),
    "sample --model gone --method ocm --steps 5",
    *("sample --model . --head gone --steps 5", "init mine --images gone"),
    *("init mine --images docs --model gone", "denoise digits --method ocm --images gone"),
]


def test_a_wrong_name_or_path_is_refused_before_anything_large_is_imported() -> None:
    """One after another in one process: none of them imports anything of it."""
    program = "import sys, ocm_core.cli as cli; codes = [cli.main(w.split()) for w in sys.argv[1:]]"
    done = python(f"{program}; print(*codes, *{LARGE} & {{*sys.modules}})", *WRONG)
    assert done.stdout.split() == ["1"] * len(WRONG)
    said = done.stderr.splitlines()
    assert len(said) == len(WRONG) and all("gone" in line for line in said)


def test_the_api_starts_with_torch_and_nothing_else_that_is_large() -> None:
    done = python(f"import sys, ocm_core.api; print(*{LARGE} & {{*sys.modules}})")
    assert done.stdout.split() == ["torch"]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = "import sys; from ocm_core.cli import main; sys.exit(main(['status', 'digits_full']))"
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def failing(monkeypatch: pytest.MonkeyPatch, error: OSError) -> int:
    """Let a command fail with an error of the system."""

    def fails(json: bool) -> None:
        """Fail."""
        raise error

    monkeypatch.setitem(COMMANDS, "index", (fails, COMMANDS["index"][1]))
    return main(["index"])


ERRORS = {
    "Permission denied": PermissionError(errno.EACCES, "Permission denied", "a/b"),
    "Read-only file system": OSError(errno.EROFS, "Read-only file system", "a/b"),
    "No space left on ": OSError(errno.ENOSPC, "No space left on device", "a/b"),
}


@pytest.mark.parametrize("message", ERRORS)
def test_a_file_that_cannot_be_written_is_named(message, monkeypatch, capsys) -> None:
    assert failing(monkeypatch, ERRORS[message]) == 1
    assert capsys.readouterr().err.startswith(f"ocm: a/b: {message}")


def test_a_log_on_a_full_disk_is_no_traceback(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(run, "LOG", logging.Logger("full"))
    (log := tmp_path / "x.log").symlink_to("/dev/full")
    run._log_to(log, first=True)
    run.LOG.info("something that does not fit")
    assert "something" in (said := capsys.readouterr().err) and "Traceback" not in said


def test_a_dangling_link_is_named_and_a_bug_is_traced(monkeypatch, tmp_path: Path, capsys) -> None:
    link = tmp_path / "artifacts"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(OSError) as raised:
        (link / "digits").mkdir(parents=True, exist_ok=True)
    assert failing(monkeypatch, raised.value) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ocm: {link}: a link to {tmp_path / 'gone'}, which does not exist")
    with pytest.raises(FileNotFoundError):
        failing(monkeypatch, FileNotFoundError(errno.ENOENT, "No such file", "a/b"))


def test_another_checkout_runs_its_own_code(tmp_path: Path) -> None:
    leave = shutil.ignore_patterns("__py*")
    shutil.copytree(ROOT / "ocm_core", tmp_path / "ocm_core", ignore=leave)
    pages = tmp_path / "ocm_core/commands/artifacts.py"
    own = '@command()\ndef index():\n    """Say where."""\n    print(__file__)\n    return 7\n'
    pages.write_text(f"{pages.read_text()}\n\n{own}")
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from ocm_core.cli import main; "
    done = python(f"{path}sys.exit(main())", "index", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (7, str(pages.resolve())), done.stderr
