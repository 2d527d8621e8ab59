"""The `testbed` command: one verb per module of testbed/commands, each loaded only when it is needed.

A verb's module exports a click command called `command` and imports nothing heavier than click at its top, so that
`testbed --help` can list them all at once.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from testbed import __version__, commands
from testbed.base import this_process
from testbed.base.errors import BAD_INPUT, INTERRUPTED, RUN_FAILED, InputError, MachineError, Problem, UserError
from testbed.base.text import fit
from testbed.commands._group import Group

_OF_ROOT = ("/run", "/sys", "/proc", "/dev", "/var")


class Verbs(Group):
    """A group whose commands are the modules of `testbed.commands`; shows every error in the same way."""

    headings = {
        "Plan": ("checklist", "predict", "calibrate"),
        "Measure": ("run", "tune", "bench"),
        "Results": ("report", "compare", "plot", "runs", "archive", "verify", "chakra"),
        "Fabric": ("up", "status", "advance", "job", "shell", "exec", "ovs", "down"),
        "Observe": ("show", "probe", "capture", "serve"),
        "Change": ("inject", "heal", "config"),
        "Learn": ("examples", "drill"),
        "Machine": ("doctor", "clean", "completion"),
    }
    former = {
        "list": "status --all", "inspect": "status --where", "logs": "show logging --part", "ethtool": "show ethtool",
    }  # fmt: skip

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(commands.__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(f"testbed.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def main(  # type: ignore[override]  # this group is always the program, so it always exits
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        argv = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in argv[: argv.index("--") if "--" in argv else None]
        extra["standalone_mode"] = False
        try:
            code = super().main(argv, prog_name or "testbed", **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = BAD_INPUT
        except click.ClickException as error:
            code = error.exit_code
            if as_json:
                _print_json({"what": error.format_message(), "where": "command line", "hint": "see testbed --help"})
            else:
                error.show()
        except UserError as error:
            code = error.exit_code
            _show(error, as_json)
        except OSError as error:
            told = _of_system(error)
            code = told.exit_code
            _show(told, as_json)
            _traceback_if_asked()
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
            _show(UserError("interrupted"), as_json)
        except Exception as error:
            from results.store.folder import StoreError
            from workloads.own.mistake import BadAlgorithm

            if lost := _of_fabric(error):
                _show(lost, as_json)
                sys.exit(lost.exit_code)
            if isinstance(error, StoreError | BadAlgorithm):  # a run folder that is not whole; for another size
                _show(InputError(error.what, error.where, error.hint), as_json)
                sys.exit(BAD_INPUT)
            code = RUN_FAILED  # a bug: say so in the form asked for, and keep the evidence
            traceback.print_exc()
            if as_json:
                what = f"internal error: {type(error).__name__}: {error}"
                _print_json({"what": what, "where": "", "hint": "this is a bug in Railbed; the traceback is on stderr"})
        sys.exit(code if isinstance(code, int) else 0)


def _of_system(error: OSError) -> UserError:
    """What the operating system refused; an ordinary user is told that it needs root."""
    where = str(error.filename or "")
    if isinstance(error, PermissionError) and os.geteuid() != 0 and where.startswith(_OF_ROOT):
        return MachineError("needs root", where, f"sudo {' '.join(sys.argv)}")
    return UserError(error.strerror or str(error), where)


def _of_fabric(error: Exception) -> UserError | None:
    """What has become of the fabric that a command spoke to, if its fabricd answers no more."""
    from hardware.client import FabricdLost

    if not isinstance(error, FabricdLost) or error.control is None:
        return None
    from testbed.fabric.parts import failed

    return failed(error, error.control.parent)


def _print_json(error: dict[str, Any]) -> None:
    click.echo(json.dumps({"error": error}))


def _show(error: UserError, as_json: bool) -> None:
    """Print an error: JSON on stdout if that was asked for, else text on stderr."""
    if as_json:
        _print_json(error.to_dict())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for number, problem in enumerate((Problem(error.what, error.where, error.hint), *error.also)):
        console.print(Text.assemble(("error: " if number == 0 else "also: ", "bold red"), fit(problem.what)))
        if problem.where:
            console.print(Text.assemble(("  at: ", "dim"), fit(problem.where)))
        if problem.hint:
            console.print(Text.assemble(("  hint: ", "cyan"), fit(problem.hint)))


def _traceback_if_asked() -> None:
    if os.environ.get("RAILBED_DEBUG"):
        traceback.print_exc()


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from results.store.environment import commit

    source = commit()
    click.echo(f"testbed, version {__version__}" + (f" ({source})" if source else ""))
    ctx.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """An AI-fabric testbed in a box: emulated GPU clusters on Open vSwitch, with real collective traffic.

    \b
    Examples:
      testbed doctor                               can this machine run it?
      testbed run experiments/quickstart.yaml      one measured run
      testbed bench all_reduce -b 1K -e 16M -f 4   a collective, as nccl-tests
      testbed up experiments/quickstart.yaml       a fabric to play with
    """


class _End:
    """The end of the process, after threads have ended and others have tidied up: at once.

    To take all modules apart, one by one, would take as long as to import a good part of them.
    """

    code: Any = None

    def __call__(self) -> None:
        if isinstance(self.code, int):
            with suppress(OSError, ValueError):  # Python says so as ever
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:  # whoever started us may have closed it
                        stream.flush()
                os._exit(self.code)


def main() -> NoReturn:
    """Entry point of the console script.  SIGTERM and SIGHUP unwind like Ctrl-C, so that nothing is left behind."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    this_process.ours = True
    ended = _End()
    atexit.register(ended)
    gc.set_threshold(100_000)  # most of what is made is imported, and stays
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
        signal.signal(signal.SIGHUP, stop)
    try:
        cli.main()
    except SystemExit as end:
        ended.code = end.code
        raise
    except KeyboardInterrupt:  # another one, while the end of the command was told
        ended.code = INTERRUPTED
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
