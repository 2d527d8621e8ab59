"""docs/commands.md, from the commands themselves: `python -m tests.commands_page`."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli import Verbs, cli

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
_HEAD = """# Commands
What `--help` says, of every command. Those that measure or show take `--json`. Exit codes: 0 done, 1 the run failed,
2 bad input, 3 the machine cannot. This page is made from the commands: `python -m tests.commands_page`.
"""
_WIDTH = 100


def as_markdown() -> str:
    """The page: under each heading of `testbed --help` its commands, each with its help."""
    assert isinstance(cli, Verbs)
    top = click.Context(
        cli, info_name="testbed", terminal_width=_WIDTH, max_content_width=_WIDTH, **cli.context_settings
    )
    parts = [_HEAD]
    for heading, names in cli.headings.items():
        parts.append(f"## {heading}\n")
        for name in names:
            command = cli.get_command(top, name)
            assert command is not None
            parts += [f"### testbed {name}\n", f"```text\n{_help(command, top, name)}\n```\n"]
    return "\n".join(parts)


def _help(command: click.Command, parent: click.Context, name: str) -> str:
    with click.Context(command, info_name=name, parent=parent) as ctx:
        return "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())


if __name__ == "__main__":
    PAGE.write_text(as_markdown())
