"""Arrays that are laid out by hand are those that pyarrow makes; and a run is stored without pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.frames.arrow import MANY, arrow_array

KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)),
    "bool": (pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_it_is_what_pyarrow_makes(kind: str, data: st.DataObject) -> None:
    arrow, value = KINDS[kind]
    values = data.draw(st.lists(st.none() | value, max_size=40))
    made = arrow_array(values, arrow)
    made.validate(full=True)
    assert made.equals(pa.array(values, arrow))
    assert made.null_count == values.count(None)


def test_many_values_are_left_to_pyarrow() -> None:
    assert arrow_array(["a", None] * MANY, pa.string()).equals(pa.array(["a", None] * MANY))


def test_a_frame_is_stored_without_pandas() -> None:
    script = """
import sys, tempfile
from results.store.folder import RunFolder
with tempfile.TemporaryDirectory() as top:
    folder = RunFolder.create("x", top + "/run")
    folder.write_frame("ports", [{"node": "h0", "port": 1}])
    folder.write_frame("results", [])
assert "pandas" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
