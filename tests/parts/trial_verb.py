"""The command line as a process, and with a verb `trial` of a test's own."""

import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from click.testing import CliRunner

from testbed import commands
from testbed.cli import cli

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **kwargs) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, **kwargs)


@pytest.fixture
def verb(tmp_path, monkeypatch):
    """Adds a verb `trial` that takes --json, with the body given."""

    def add(body: str) -> None:
        head = "@click.command()\n@click.option('--json', 'as_json', is_flag=True)\ndef command(as_json):\n"
        (tmp_path / "trial.py").write_text("import click\n\n" + head + indent(body, "    "))
        monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])

    yield add
    sys.modules.pop("testbed.commands.trial", None)


def main_with(folder: Path) -> list[str]:
    """A command line that is the whole program with the verbs of a folder added."""
    code = f"import testbed.commands as c; c.__path__.append({str(folder)!r}); from testbed.cli import main; main()"
    return [sys.executable, "-c", code]


def trial(*arguments: str):
    return CliRunner().invoke(cli, ["trial", *arguments])
