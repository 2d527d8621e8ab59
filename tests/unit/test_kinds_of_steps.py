"""A step says itself what it is: few places ask for its kind, and what has one for each follows from a list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.experiment.model import Experiment
from testbed.experiment.steps.steps import KINDS
from testbed.plan.steps.kinds import BECOMES
from testbed.plan.steps.planned import Planned
from tests.parts.floors import floors
from workloads.base.entry import named

ROOT = Path(__file__).parents[2]
MOST_SITES = 9
NAMES = {kind.kind for kind in KINDS}
CLASSES = {kind.__name__ for kind in (*KINDS, *Planned.__subclasses__())}
OF_LINES = {"flow", "timeline"}  # kinds of what workers print, and of rows that are made of that, not of steps
LINES = {"line", "row", "r", "results", "run.results"}


def names_kinds(node: ast.expr) -> bool:
    said = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return bool(said & NAMES) and not said & OF_LINES


def is_kind(node: ast.expr) -> bool:
    """Whether it is what a step, or anything but a line, calls its kind."""
    match node:
        case ast.Name(id="kind"):
            return True
        case ast.NamedExpr(value=value):
            return is_kind(value)
        case ast.Attribute(value=of, attr="kind"):
            pass
        case ast.Subscript(value=of, slice=ast.Constant(value="kind")):
            pass
        case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[ast.Constant(value="kind"), *_]):
            pass
        case _:
            return False
    return ast.unparse(of) not in LINES


def sites(text: str) -> Iterator[int]:
    """Lines of a file that ask for a step's kind."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(map(is_kind, sides)) and any(names_kinds(one) for one in sides if not is_kind(one)):
                    yield node.lineno
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]) | ast.MatchClass(cls=classes):
                if {one.id for one in ast.walk(classes) if isinstance(one, ast.Name)} & CLASSES:
                    yield node.lineno


def test_few_places_ask_for_the_kind_of_a_step() -> None:
    files = (f for package in floors(ROOT) for f in (ROOT / package).rglob("*.py") if "runs" not in f.parts)
    found = [f"{f.relative_to(ROOT)}:{line}" for f in sorted(set(files)) for line in sites(f.read_text())]
    assert len(found) <= MOST_SITES, found


@pytest.mark.parametrize(
    "text",
    [
        'if step.kind == "train": pass', 'x = told["kind"] not in ("flows", "load")', "isinstance(one, TrainStep)",
        'its.get("kind") == "tasks"', "isinstance(s, FlowsStep | LoadStep)", "match s:\n case PlannedTasks(): pass",
        '[kind for kind in step if kind != "flows"]',
    ],
)  # fmt: skip
def test_asking_is_seen(text: str) -> None:
    assert len(list(sites(text))) == 1


@pytest.mark.parametrize("text", ['line["kind"] == "tasks"', 'fabric.kind == "rail"', 'one.kind in ("flow", "tasks")'])
def test_other_kinds_are_none_of_a_step(text: str) -> None:
    assert not list(sites(text))


def test_the_schema_has_all_kinds() -> None:
    one_of = Experiment.model_json_schema()["properties"]["workload"]["items"]["oneOf"]
    assert [one["$ref"].rpartition("/")[2] for one in one_of] == [kind.__name__ for kind in KINDS]


def test_each_kind_becomes_something_that_there_is() -> None:
    for kind in KINDS:
        its = next(BECOMES[base] for base in kind.__mro__ if base in BECOMES)
        assert all(callable(named(place)) for place in (its.steps, its.graph) if place)
