"""Completions of the commands' arguments in a shell: files, runs, fabrics, faults, targets (docs/completion.md).

They are worked out only while the shell completes, so they cost the commands nothing. A completer that fails returns
nothing: it must never disturb the line that is being typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click

Completer = Callable[["click.Context", "click.Parameter", str], list[CompletionItem]]


def _of(words: Callable[[], Iterable[tuple[str, str]]], files: str = "") -> Completer:
    """A completer from (word, help); `files`: what the shell may complete besides, `file` or `dir`."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            items = [CompletionItem(word, help=text) for word, text in words() if word.startswith(incomplete)]
        except Exception:
            items = []
        return items if items or not files else [CompletionItem(incomplete, type=files)]

    return complete


def _runs() -> Iterable[tuple[str, str]]:
    from results.store.load import latest

    return ((folder.name, "") for folder in latest())


def _fabrics() -> Iterable[tuple[str, str]]:
    from testbed.machine import ownership

    return ((record.id, record.state) for record in ownership.fabrics())


def _faults() -> Iterable[tuple[str, str]]:
    from testbed.faults import CATALOGUE

    return ((cls.name, cls.summary) for cls in CATALOGUE.values())


def _healable() -> Iterable[tuple[str, str]]:
    from testbed.inject.live import listed

    return [*((row["id"], str(row.get("fault", ""))) for row in listed()), ("all", "every fault")]


def _targets() -> Iterable[tuple[str, str]]:
    """Targets of the only fabric that is up."""
    from testbed.fabric.lab import Lab

    with closing(Lab.attach(None)) as lab:
        fabric = lab.fabric
    yield from ((f"cable:{cable.name}", "") for cable in fabric.cables)
    yield from ((f"switch:{switch.name}", "") for switch in fabric.switches)
    yield from ((f"nic:{nic.rank}", nic.name) for nic in fabric.nics)
    yield from ((word, "") for word in ("controller", "all"))


def _drills() -> Iterable[tuple[str, str]]:
    from drills.sheet import file

    return ((name, file.load(name).title) for name in file.catalogue())


RUN = _of(_runs, "dir")
FABRIC = _of(_fabrics)
DRILL = _of(_drills, "file")
RUN_OR_FABRIC = _of(lambda: [*_fabrics(), *_runs()], "dir")
FAULT = _of(_faults)
HEALABLE = _of(_healable)
TARGET = _of(_targets)
FILE = _of(lambda: ((str(p), "") for p in sorted(Path("experiments").glob("*.yaml"))), "file")
