"""Which clock `testbed up` brings a fabric up with: what the command line says, else the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from testbed.base.errors import UserError
from testbed.cli import cli
from testbed.experiment import Experiment
from testbed.fabric.lab import Lab

STAR = "name: star\nfabric: {topology: {star: {hosts: 2}}}\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """What fabrics were asked for."""
    found: list[Experiment] = []

    def up(experiment: Experiment, **_: Any) -> NoReturn:
        found.append(experiment)
        raise UserError("asked")  # instead of a fabric

    monkeypatch.setattr(Lab, "up", up)
    return found


@pytest.mark.parametrize(
    ("written", "words", "mode"),
    [
        ("", (), "real"),
        ("clock: virtual", (), "real"),  # that is for runs
        ("clock: virtual", ("--virtual",), "virtual"),
        ("", ("--set", "clock=virtual"), "virtual"),
        ("clock: real", ("--set", "clock=virtual"), "virtual"),
        ("clock: real", ("--virtual",), "virtual"),
        ("clock: virtual", ("--set", "clock={real: {dilation: 7}}"), "real"),
        ("clock: virtual", ("--virtual", "--set", "clock=virtual"), "virtual"),
        ("clock: virtual", ("--virtual", "--set", "seed=2"), "virtual"),
        ("clock: virtual", ("--set", "seed=2"), "real"),
    ],
)
def test_the_clock_is_what_the_command_line_says(
    written: str, words: tuple[str, ...], mode: str, asked: list[Experiment], tmp_path: Path
) -> None:
    (tmp_path / "star.yaml").write_text(STAR + written)
    result = CliRunner().invoke(cli, ["up", str(tmp_path / "star.yaml"), *words])
    assert "error: asked" in result.output
    assert [one.clock.mode for one in asked] == [mode]
    if "dilation" in str(words):
        assert asked[0].clock.dilation == 7


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--virtual", "--set", "clock=real"), "--virtual --set clock=real"),
        (("--virtual", "--set", "clock={real: {dilation: 9}}"), "--virtual --set clock={real"),
        (("--job", "--set", "clock=real"), "--job"),
        (("--job",), "--job"),
    ],
)
def test_two_clocks_are_refused(words: tuple[str, ...], where: str, asked: list[Experiment], tmp_path: Path) -> None:
    (tmp_path / "star.yaml").write_text(STAR)
    result = CliRunner().invoke(cli, ["up", str(tmp_path / "star.yaml"), *words])
    assert (result.exit_code, asked) == (2, [])
    assert f"at: command line: {where}" in result.output and "hint: " in result.output
