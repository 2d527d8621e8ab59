"""A group of commands whose help lists them whole, under headings, and that says what an unknown word is close to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

import click

_NEAR = 3  # suggestions at most


class Group(click.Group):
    """`headings` has the commands under each; what stands under none is listed last."""

    headings: Mapping[str, Sequence[str]] = {}
    others = "Commands"
    """What those are under that no heading names."""
    former: Mapping[str, str] = {}
    """Words that are no commands (any more), each with the command that does what they say."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, but under headings, and with the first sentence of each whole."""
        every = self.list_commands(ctx)
        under = {heading: [name for name in names if name in every] for heading, names in self.headings.items()}
        others = [name for name in every if not any(name in names for names in under.values())]
        width = max(map(len, every), default=0)
        for heading, names in {**under, self.others: others}.items():
            found = [(name.ljust(width), self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(limit=1000)) for name, command in found if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(self._unknown(ctx, name))
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> str:
        words = {word for command in self.list_commands(ctx) for word in (command, command.partition(" ")[0])}
        known = {word: word for word in sorted(words)} | dict(self.former)
        near = [name] if name in self.former else _near(name, known)
        text = f"No such command {name!r}."
        if near and near[0] in self.former:
            return f"{text} `{ctx.command_path} {self.former[near[0]]}` does that."
        return f"{text} Did you mean {' or '.join(map(repr, near))}?" if near else text


def _near(name: str, known: Collection[str]) -> list[str]:
    """What was probably meant. Of a word of two letters that have changed places, difflib sees half."""
    swapped = [word for word in known if sorted(word) == sorted(name)]
    return [*dict.fromkeys([*swapped, *get_close_matches(name, known, _NEAR)])][:_NEAR]
