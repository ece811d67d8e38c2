"""Better covariances for pretrained diffusion models: the pipeline's day-to-day commands.

The experiments themselves are run by `snakemake` or `dvc repro`.
"""

import errno
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from pkgutil import iter_modules

from ocm_core import commands
from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for
from ocm_core.project import PACKAGE, is_checkout

EXIT_CODES = """exit codes:
  0    success
  1    something is wrong with what was asked; stderr, or the output itself, says what
  2    a mistake in the command line
  130  interrupted by Ctrl-C"""
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)  # by the file system


def all_commands() -> dict[str, tuple[commands.Run, tuple[commands.Argument, ...]]]:
    """Return every command by name; their files import what takes time only when they run."""
    for info in iter_modules(commands.__path__):
        import_module(f"{commands.__name__}.{info.name}")
    return dict(sorted(commands.COMMANDS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user end in a message and an exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        _use_code_of_checkout(words)
        arguments = vars(_parser().parse_args(words))
        with room_for(Path()):
            code: int = arguments.pop("run")(**arguments) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has seen enough, as in `ocm params digits | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OcmError, OSError) as error:
        message = _explained(error) if isinstance(error, OSError) else str(error)
        if message is None:
            raise
        print("\n".join(f"ocm: {line}" for line in message.splitlines()), file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"ocm: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130


def _use_code_of_checkout(arguments: Sequence[str]) -> None:
    """Start again with the code of this folder, if it is another checkout than the one imported.

    DVC runs commands in copies of the repository, whose code may be another.
    """
    here = Path.cwd().resolve()
    if not is_checkout() or PACKAGE.parent == here:
        return
    earlier = os.environ.get("PYTHONPATH", "")
    if earlier.split(os.pathsep)[0] == str(here):
        raise OcmError(f"{here}: has an ocm_core of its own, and {PACKAGE} was imported")
    path = os.pathsep.join(filter(None, (str(here), earlier)))
    program = [sys.executable, "-m", "ocm_core.cli", *arguments]
    os.execve(sys.executable, program, {**os.environ, "PYTHONPATH": path})


def _explained(error: OSError) -> str | None:
    """Return the message for a file that the system does not let us write; None for a bug."""
    if error.filename is None:
        return None
    path = Path(os.fsdecode(error.filename))
    for link in (path, *path.parents):
        if link.is_symlink() and not link.exists():
            gone = f"a link to {os.readlink(link)}, which does not exist"
            return f"{link}: {gone}; make that folder, or remove the link"
    return f"{path}: {error.strerror}" if error.errno in REFUSED else None


def _parser() -> ArgumentParser:
    plain = RawDescriptionHelpFormatter
    parser = ArgumentParser("ocm", description=__doc__, epilog=EXIT_CODES, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"ocm {version('ocm-core')}")
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for name, (run, arguments) in all_commands().items():
        text, _, examples = cleandoc(run.__doc__ or "").partition("examples:")
        own = subparsers.add_parser(
            name,
            help=text[0].lower() + text.splitlines()[0][1:].removesuffix("."),
            description=text,
            epilog=f"examples:{examples}\n\n{EXIT_CODES}",
            formatter_class=plain,
        )
        for argument in arguments:
            argument(own)
        own.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
