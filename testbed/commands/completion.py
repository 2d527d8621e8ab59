"""`testbed completion`: the script that lets a shell complete our command lines."""

from __future__ import annotations

import click

_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/testbed",
    "zsh": "~/.zfunc/_testbed",
    "fish": "~/.config/fish/completions/testbed.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it, instead of printing it.")
def command(shell: str, install: bool) -> None:
    """Let Tab complete verbs, files, fabrics, faults, runs.

    Prints the script that SHELL takes for it.

    \b
    Examples:
      testbed completion bash --install
      source <(testbed completion bash)
    """
    from pathlib import Path

    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None  # click has all three
    text = completion(click.get_current_context().find_root().command, {}, "testbed", "_TESTBED_COMPLETE").source()
    if not install:
        click.echo(text)
        return
    path = Path(_WHERE[shell]).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    click.echo(f"{path} written; it holds in the next shell")
    if shell == "zsh":
        click.echo("~/.zshrc must have: fpath+=(~/.zfunc); autoload -Uz compinit; compinit")
