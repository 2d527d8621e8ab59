"""Commands made from entries of a registry: `testbed show interfaces errors` from the entry of these words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from testbed.commands import _fabric
from testbed.commands._group import Group

if TYPE_CHECKING:
    from testbed.words.entry import Entry, Parameter

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older ones are not generic


class _Word(ParamType):
    """A word that is read once the fabric is known; the shell is offered what fits there."""

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.kind.name
        self.parameter = parameter

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from testbed.fabric.lab import Lab

        try:
            with closing(Lab.attach(ctx.params.get("fabric") or None)) as lab:
                words = list(self.parameter.kind.known(lab.fabric))
        except Exception:  # it must never disturb the line that is being typed
            return []
        return [CompletionItem(word, help=text) for word, text in words if word.startswith(incomplete)]


def parameters(entry: Entry) -> list[click.Parameter]:
    """click's parameters for an entry's; each gets the text as it was written."""
    return [_option(p) if p.option else _argument(p) for p in entry.parameters]


def _argument(p: Parameter) -> click.Argument:
    shown = p.kind.metavar or p.name.upper()
    metavar = shown if p.required else f"[{shown}]"
    return click.Argument([p.name], required=p.required, type=_Word(p), metavar=metavar, nargs=-1 if p.rest else 1)


def _option(p: Parameter) -> click.Option:
    if p.kind.name == "flag":
        return click.Option([p.flag, p.name], is_flag=True, help=p.help)
    names = [*filter(None, (p.short, p.flag)), p.name]
    return click.Option(names, type=_Word(p), metavar=p.kind.metavar, required=p.required, help=p.help)


def texts(entry: Entry, given: Mapping[str, Any]) -> dict[str, str]:
    """What was written for an entry's parameters, out of all that the command line gave."""
    values = {p.name: given[p.name] for p in entry.parameters if given.get(p.name)}
    return {name: " ".join(value) if isinstance(value, tuple) else str(value) for name, value in values.items()}


def command(entry: Entry, verb: str, options: Sequence[click.Parameter], run: Callable[..., None]) -> click.Command:
    """The command of an entry: `run` gets `fabric` and all that was given.

    The fabric's ID goes without `--fabric` where no other word stands.
    """
    places = [p for p in entry.parameters if not p.option]
    about = f"{entry.about}\n\n\b\nExamples:\n" + "".join(
        f"  {' '.join(filter(None, ('testbed', verb, words)))}\n" for words in entry.examples
    )
    return click.Command(
        entry.words,
        callback=run if places else _fabric.either_of(run),
        params=[*([] if places else _fabric.both()), *parameters(entry), *([_fabric.named()] if places else []),
                *options],
        help=about,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip


class LazyCommand(click.Command):
    """A command that is made when it is used: until then it costs nothing."""

    def __init__(self, name: str, help: str, make: Callable[[], click.Command]) -> None:
        self._make = make
        super().__init__(name, help=help)

    @cached_property
    def made(self) -> click.Command:
        return self._make()

    @property
    def params(self) -> list[click.Parameter]:
        return self.made.params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        """click sets them; ours come from what is made."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        return self.made.make_context(info_name, args, parent, **extra)


Makers = dict[str, Callable[[], click.Command]]


class Entries(Group):
    """A group with commands of several words, such as `interfaces status`, beside its ordinary ones.

    `more` says which, when somebody asks: it costs other verbs nothing.
    """

    def __init__(self, *args: Any, more: Callable[[], Makers], **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._more = more

    @cached_property
    def entries(self) -> Makers:
        return self._more()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.entries])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        made = self.entries.get(cmd_name)
        return made() if made else super().get_command(ctx, cmd_name) or self._group(cmd_name)

    def _group(self, first: str) -> click.Group | None:
        """The commands that begin with a word, to be listed."""
        under = {w.partition(" ")[2]: made for w, made in self.entries.items() if w.startswith(f"{first} ")}
        if not under:
            return None
        about = f"{first}: {', '.join(sorted(under))}."
        return Entries(first, more=lambda: under, help=about, context_settings={"help_option_names": ["-h", "--help"]})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from testbed.words.entry import in_full

        args = in_full(args, [*self.entries, *self.commands])
        for count in range(len(args), 0, -1):
            if (make := self.entries.get(" ".join(args[:count]))) is not None:
                command = make()
                return command.name, command, args[count:]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        return [*{item.value.partition(" ")[0]: item for item in items}.values()]
