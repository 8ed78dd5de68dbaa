"""The command line: `noctune COMMAND ...`.

In: arguments.  Out: an exit code: 0 fine, 1 an error of noctune's own, 2 bad input or a broken
environment, 130 ended by Ctrl-C.  Each command is a module of `flows.commands` that is imported
only when it is asked for; none of the quick ones imports Prefect.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from engine.errors import NoctuneError
from flows.json_lines import tell
from flows.text import noctune_version

COMMANDS: dict[str, str] = {
    "zoo": "list the built-in networks, or write one as ONNX",
    "tasks": "show the search tasks that a network is cut into",
    "space": "show the search space of a network's tasks: sketches and knobs",
    "tune": "search for the fastest programs of one or several networks",
    "compile": "build a network from the best records: one file",
    "run": "run a compiled network on arrays",
    "bench": "time a compiled network, beside other engines if wanted",
    "profile": "show where a compiled network spends its time",
    "machine": "measure this machine's arithmetic peak and memory bandwidth",
    "records": "look into the database, export and import records",
    "distill": "keep the best records, archive the rest",
    "nightly": "tune, compile, check and publish many networks in a time window",
    "rollback": "publish the version before the present one again",
    "setup-prefect": "create what the deployments need on a Prefect server",
    "demo": "the whole way on resnet-18 in a few minutes",
}

EPILOG = """\
MODEL is the name of a built-in network (`noctune zoo`) or the path of an ONNX file.
`noctune COMMAND --help` shows the options and an example.

example:
  noctune tune resnet-18 --time 10m
  noctune compile resnet-18 -o resnet-18.net
  noctune bench resnet-18.net --model resnet-18 --against onnxruntime
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the console script's entry point."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in COMMANDS:
        return _without_command(arguments)
    module = import_module("flows.commands." + arguments[0].replace("-", "_"))
    args = command_parser(arguments[0], module).parse_args(arguments[1:])
    if getattr(args, "log_json", False):
        args.json = True
    return guarded(module, args)


def command_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """The parser of one command: help text, example and options of its module."""
    parser = argparse.ArgumentParser(
        prog=f"noctune {name}",
        description=module.__doc__,
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def guarded(module: ModuleType, args: argparse.Namespace) -> int:
    """Run a command and turn every error into one line and an exit code."""
    try:
        return int(module.run(args) or 0)
    except NoctuneError as error:
        return _fail(str(error), 2, args)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, args)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(_system_error(error), 2, args)
    except MemoryError:
        return _fail("out of memory. Use a smaller batch, or a machine with more memory", 2, args)
    except Exception as error:
        return _fail(
            f"unexpected {type(error).__name__}: {' '.join(str(error).split())}. "
            "This is a fault of noctune; NOCTUNE_DEBUG=1 shows where it arose",
            1,
            args,
        )


def _fail(message: str, code: int, args: argparse.Namespace | None = None) -> int:
    text = f"noctune: {message}"
    if os.environ.get("NOCTUNE_DEBUG", "") not in ("", "0") and code != 130:
        import traceback

        text = f"{traceback.format_exc()}{text}"
    tell(args, text, "ERROR")
    return code


def _system_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    fixes = {
        errno.ENOSPC: "Free some space and run again; nothing stored is lost.",
        errno.EACCES: "Check the permissions of the file and its folder.",
        errno.EROFS: "Choose a folder that can be written to.",
        errno.ENOENT: "Check the path.",
    }
    text = f"{where}{error.strerror or error}"
    fix = fixes.get(error.errno or 0)
    return f"{text}. {fix}" if fix else text


def _without_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="noctune",
        usage="noctune COMMAND [options]",
        description="Makes neural networks faster on this CPU: tunes, compiles, checks and times "
        "ONNX models.\n\ncommands:\n"
        + "\n".join(f"  {name:<14} {text}" for name, text in COMMANDS.items()),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"noctune {noctune_version()}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    args, _ = parser.parse_known_args(arguments)
    if args.command is None:
        parser.print_help()
        return 0
    from difflib import get_close_matches

    near = get_close_matches(args.command, COMMANDS, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else " `noctune --help` lists the commands."
    return _fail(f"unknown command '{args.command}'.{hint}", 2)


if __name__ == "__main__":
    sys.exit(main())
