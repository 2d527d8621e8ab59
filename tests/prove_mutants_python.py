"""Mutants of Python: mutmut's operators, and a few of our own.

mutmut (BSD) is used as a library: its command runs a copy with all mutants at once, chosen by name, which neither
properties and cached functions nor programs that tests start would see. Left out are its changes of strings, and all in
`raise`, in annotations, decorators, type variables and imports for type checkers: what tests say of a message is what
it has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_assignment, operator_string

from tests.prove_mutants_bench import Mutant


def _negated(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), inner))


def _unfiltered(node: cst.CompFor) -> Iterable[cst.CSTNode]:
    for i in range(len(node.ifs)):
        yield node.with_changes(ifs=[*node.ifs[:i], *node.ifs[i + 1 :]])


def _removed(node: cst.SimpleStatementLine) -> Iterable[cst.CSTNode]:
    for statement in node.body:
        if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call | cst.Yield | cst.Await):
            yield node.with_changes(body=[cst.Pass()])


def _assigned(node: cst.Assign | cst.AnnAssign) -> Iterable[cst.CSTNode]:
    """Not what changes nothing: names of types, and None for False."""
    if isinstance(node.value, cst.Subscript) or isinstance(node.value, cst.Name) and node.value.value == "False":
        return []
    alias = isinstance(node, cst.AnnAssign) and isinstance(node.annotation.annotation, cst.Name)
    if alias and node.annotation.annotation.value == "TypeAlias":
        return []
    return operator_assignment(node)


OPERATORS: Sequence[tuple[type, Callable[[Any], Iterable[cst.CSTNode]]]] = [
    *(each for each in mutation_operators if each[1] not in (operator_string, operator_assignment)),
    (cst.Assign, _assigned),
    (cst.AnnAssign, _assigned),
    (cst.If, _negated),
    (cst.While, _negated),
    (cst.CompFor, _unfiltered),
    (cst.SimpleStatementLine, _removed),
]
_AT_TYPE_CHECKING = "TYPE_CHECKING"


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


class _Places(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Raise | cst.Import | cst.ImportFrom | cst.BaseString):
            return False
        if isinstance(node, cst.If) and _is(node.test, _AT_TYPE_CHECKING):
            return False
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call) and _is(node.value.func, "TypeVar"):
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                line = self.get_metadata(PositionProvider, node).start.line
                self.found += [(line, node, other) for other in operator(node)]
        return True


def mutants(file: str, code: str) -> dict[int, list[Callable[[], Mutant]]]:
    """Of each line the changes that can be made there."""
    visitor = _Places()
    module = MetadataWrapper(cst.parse_module(code)).visit(visitor)

    def made(line: int, node: cst.CSTNode, other: cst.CSTNode) -> Mutant:
        changed = module.deep_replace(node, other)
        assert isinstance(changed, cst.Module)
        return Mutant.between(file, line, code, changed.code)

    lines: dict[int, list[Callable[[], Mutant]]] = {}
    for line, node, other in visitor.found:
        lines.setdefault(line, []).append(partial(made, line, node, other))
    return lines
