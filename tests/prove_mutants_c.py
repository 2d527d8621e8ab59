"""Mutants of C, by tree-sitter's grammar: relations, arithmetic, constants, conditions, statements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import tree_sitter_c
from tree_sitter import Language, Node, Parser

from tests.prove_mutants_bench import Mutant

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
    "&&": "||", "||": "&&", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=",
}  # fmt: skip
_ORDER = ("<", "<=", ">", ">=")
_WITH_OPERATOR = ("binary_expression", "assignment_expression")
_LEFT_OUT = ("preproc_include", "preproc_def", "comment", "string_literal", "static_assert_declaration")

Place = tuple[int, int, str]
"""Of the source: first byte, the one behind the last, and what stands there instead."""


def _walk(node: Node) -> Iterator[Node]:
    if node.type not in _LEFT_OUT:
        yield node
        for child in node.children:
            yield from _walk(child)


def _inside(node: Node) -> bool:
    """Whether it is in a function: types, tables and sizes of arrays are left alone."""
    up = node.parent
    while up and up.type not in ("function_definition", "array_declarator", "case_statement"):
        up = up.parent
    return up is not None and up.type != "array_declarator"


def _field(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    assert found is not None
    return found


def _is_and(node: Node) -> bool:
    return node.type == "binary_expression" and _field(node, "operator").type == "&&"


def _is_of_equals(relation: Node) -> bool:
    """Whether it tells which of two is taken, `a < b ? a : b` or `if (a > b) b = a`: of equals, either is the same."""
    whole = relation.parent
    while whole and (whole.type == "parenthesized_expression" or _is_and(whole)):
        whole = whole.parent
    if whole is None or relation.type != "binary_expression":
        return False
    if whole.type == "conditional_expression":
        taken = [whole.child_by_field_name("consequence"), whole.child_by_field_name("alternative")]
    elif whole.type == "if_statement" and not whole.child_by_field_name("alternative"):
        does = _field(whole, "consequence")
        inner = does.children[0] if does.type == "expression_statement" else does
        taken = [inner.child_by_field_name("left"), inner.child_by_field_name("right")]
    else:
        return False
    compared = [_field(relation, "left"), _field(relation, "right")]
    return None not in taken and {n.text for n in taken if n} == {n.text for n in compared}


def _is_allocated(node: Node) -> bool:
    """One more that `calloc` is asked for: nobody can see that."""
    call = node.parent.parent if node.parent and node.parent.type == "argument_list" else None
    return call is not None and _field(call, "function").text == b"calloc"


def _changes(node: Node, code: bytes) -> Iterator[Place]:
    if node.type in _WITH_OPERATOR:
        operator = node.child_by_field_name("operator")
        same = operator and operator.type in _ORDER and _is_of_equals(node)
        if operator and not same and (other := SWAPS.get(operator.type)):
            yield operator.start_byte, operator.end_byte, other
    elif node.type == "number_literal" and not _is_allocated(node):
        text = code[node.start_byte : node.end_byte].decode()
        if text.isdecimal() and not (node.parent and node.parent.type == "case_statement"):
            yield node.start_byte, node.end_byte, str(int(text) + 1)
        elif not text.isdecimal():
            yield node.start_byte, node.end_byte, f"({text} + 1)"
    elif node.type in ("if_statement", "while_statement", "conditional_expression"):
        condition = node.child_by_field_name("condition")
        if condition:
            text = code[condition.start_byte : condition.end_byte].decode()
            yield condition.start_byte, condition.end_byte, f"(!{text})" if text[0] == "(" else f"!({text})"
    elif node.type == "expression_statement" and node.text != b"abort();":  # which is where memory has run out
        yield node.start_byte, node.end_byte, ";"


@contextmanager
def sanitized() -> Iterator[None]:
    """Tests use the fabricd in which memory that is lost or touched wrongly is a mistake: they build it themselves."""
    os.environ["RAILBED_FABRICD"] = "sanitized"
    try:
        yield
    finally:
        os.environ["RAILBED_FABRICD"] = "plain"


def mutants(file: str, code: str) -> dict[int, list[Callable[[], Mutant]]]:
    """Of each line the changes that can be made there."""
    text = code.encode()

    def made(line: int, place: Place) -> Mutant:
        first, behind, other = place
        return Mutant.between(file, line, code, (text[:first] + other.encode() + text[behind:]).decode())

    lines: dict[int, list[Callable[[], Mutant]]] = {}
    for node in _walk(Parser(Language(tree_sitter_c.language())).parse(text).root_node):
        if _inside(node):
            line = node.start_point[0] + 1
            lines.setdefault(line, []).extend(partial(made, line, place) for place in _changes(node, text))
    return {line: found for line, found in lines.items() if found}
