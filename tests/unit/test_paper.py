"""For a paper: tables as Markdown and LaTeX, and the values of a picture."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Group
from rich.text import Text

from testbed.commands.compare import command as compare
from testbed.commands.plot import command as plot
from testbed.commands.report import command as report
from testbed.tables.cells import grid
from testbed.tables.paper import latex, markdown
from tests.parts.stored_runs import experiment, operation, stored, stored_sweep

SIZES = {1 << 10: 2000.0, 1 << 20: 40000.0}


def invoke(command: object, *arguments: object) -> str:
    done = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0, done.output
    return done.output


def a_table() -> Group:
    table = grid(("flow", "(from->to)", 12), ("rate", "(%)", 6))
    table.add_row("a|b_{1}", "97.5")
    table.add_row("~^\\", "-")
    return Group(Text("# 100% & more", style="bold"), Text("#"), table)


def test_markdown_keeps_pipes_apart() -> None:
    assert markdown(a_table()).splitlines() == [
        "100% & more", "", "| flow (from->to) | rate (%) |", "| --- | ---: |", "| a\\|b_{1} | 97.5 |", "| ~^\\ | - |",
    ]  # fmt: skip


def test_latex_escapes_what_it_would_read() -> None:
    assert latex(a_table()).splitlines() == [
        "% 100% & more", r"\begin{tabular}{lr}", r"\toprule",
        r"flow (from-\textgreater{}to) & rate (\%) \\", r"\midrule",
        r"a|b\_\{1\} & 97.5 \\", r"\textasciitilde{}\textasciicircum{}\textbackslash{} & - \\", r"\bottomrule",
        r"\end{tabular}",
    ]  # fmt: skip


def test_tables_of_runs_sweeps_and_comparisons(tmp_path: Path) -> None:
    one = stored(tmp_path / "one", [operation(t, size) for size, t in SIZES.items()])
    invoke(report, one, "-o", tmp_path / "one.md")
    lines = (tmp_path / "one.md").read_text().splitlines()
    assert "| size (B) | count (elements) | type | redop | time (us) | algbw (GB/s) | busbw (GB/s) | #wrong |" in lines
    assert "| 1048576 | 262144 | float32 | sum | 40.00 | 26.21 | 39.32 | 0 |" in lines
    swept = stored_sweep(tmp_path / "swept", [({"seed": 1}, 2000.0), ({"seed": 2}, "no room")])
    invoke(report, swept, "-o", tmp_path / "swept.tex")
    assert r"2 & no room \\" in (tmp_path / "swept.tex").read_text()
    other = stored(tmp_path / "other", [operation(2 * t, size) for size, t in SIZES.items()], experiment(seed=2),
                   metrics_sha256="1")  # fmt: skip
    invoke(compare, one, other, "-o", tmp_path / "both.tex")
    both = (tmp_path / "both.tex").read_text()
    assert r"seed & 1 & 2 \\" in both and r"time (us), 1 MiB & 40 & 80 & 2 \\" in both


@pytest.mark.parametrize(
    ("kind", "first"), [("busbw", ["bus bandwidth (GB/s)", "one"]), ("times", ["time (us)", "ring"])]
)
def test_the_values_of_a_picture_lie_beside_it(tmp_path: Path, kind: str, first: list[str]) -> None:
    one = stored(tmp_path / "one", [operation(t, size) for size, t in SIZES.items()])
    told = invoke(plot, one, kind, "-o", tmp_path / "p.pdf", "--data")
    assert told.split() == [str(tmp_path / "p.pdf"), str(tmp_path / "p.csv")]
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF")
    heads, *rows = csv.reader((tmp_path / "p.csv").open())
    values = [operation(t, size)["busbw_Bps"] / 1e9 if kind == "busbw" else t / 1e3 for size, t in SIZES.items()]
    assert heads == ["panel", "series", "x", "y"]
    assert [(float(x), pytest.approx(float(y))) for *_, x, y in rows] == list(
        zip(map(float, SIZES), values, strict=True)
    )


def test_a_picture_is_the_same_file_each_time(tmp_path: Path) -> None:
    one = stored(tmp_path / "one", [operation(2000.0)])
    for name in ("a.pdf", "b.pdf"):
        invoke(plot, one, "busbw", "-o", tmp_path / name)
    assert subprocess.run(["cmp", tmp_path / "a.pdf", tmp_path / "b.pdf"], check=False).returncode == 0
