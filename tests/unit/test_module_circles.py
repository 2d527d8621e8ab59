"""No Python files import each other in circles, within a room as little as between rooms."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.parts.floors import floors
from tests.parts.imports import imports

ROOT = Path(__file__).parents[2]


def order(root: Path, *packages: str) -> list[str]:
    """The files, each behind what it imports.  Raises CycleError, which names a circle."""
    graph: dict[str, set[str]] = {}
    for arrow in imports(root, *packages):
        graph.setdefault(arrow.user, set()).add(arrow.used)
    return list(TopologicalSorter(graph).static_order())


def test_there_is_an_order_in_which_every_file_needs_only_those_before_it() -> None:
    files = order(ROOT, *floors(ROOT))
    assert len(files) > 250
    assert files.index("workloads/base/entry.py") < files.index("workloads/registry.py")


def test_a_circle_is_named_wherever_its_imports_stand(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    for name, text in {
        "one": "from house import two\n",
        "two": "def late() -> None:\n    import house.three\n",
        "three": "if TYPE_CHECKING:\n    from house.one import Room\n",
    }.items():
        (tmp_path / "house" / f"{name}.py").write_text(text)
    with pytest.raises(CycleError) as caught:
        order(tmp_path, "house")
    assert set(caught.value.args[1]) == {f"house/{name}.py" for name in ("one", "two", "three")}
