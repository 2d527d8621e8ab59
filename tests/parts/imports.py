"""Which Python file imports which, from the sources, with imports in functions and under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.parts.floors import Arrow


def imports(root: Path, *packages: str) -> Iterator[Arrow]:
    """Arrows between files of these packages; files are named from `root`, whatever is imported by its line."""
    files = {path.relative_to(root): path for package in packages for path in sorted((root / package).rglob("*.py"))}
    modules = {_module(name): name for name in files}
    for name, path in files.items():
        for node in _statements(path):
            found = {modules[module] for module in _imported(node, name, modules)} - {name}
            yield from (Arrow(str(name), str(used), f"line {node.lineno}") for used in sorted(found))


@cache
def _statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    found: list[ast.Import | ast.ImportFrom] = []
    inner: list[ast.AST] = [ast.parse(path.read_text())]
    while inner:  # statements alone: most of a tree is expressions, in which nothing is imported
        for node in ast.iter_child_nodes(inner.pop()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.append(node)
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                inner.append(node)
    return sorted(found, key=lambda node: node.lineno)


def _module(name: Path) -> str:
    parts = name.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.Import | ast.ImportFrom, name: Path, modules: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    above = name.parts[: len(name.parts) - node.level] if node.level else ()
    base = ".".join((*above, *([node.module] if node.module else [])))
    for alias in node.names:
        if f"{base}.{alias.name}" in modules:
            yield f"{base}.{alias.name}"
        elif base in modules:
            yield base
