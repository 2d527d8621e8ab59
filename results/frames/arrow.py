"""Arrow arrays out of lists of plain values, laid out by hand as Arrow's columnar format has it.

pyarrow.array() would do, but it imports pandas first, to see whether its argument comes from there. That takes longer
than all the rest of storing a run, unless the run is long.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MANY = 10_000  # from so many values on the import is the smaller part
_CODES = {"int64": "q", "double": "d"}


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array of this type: string, int64, float64 or bool; None is missing."""
    import pyarrow as pa

    if len(values) >= MANY:
        return pa.array(values, kind)
    valid = [value is not None for value in values]
    missing = valid.count(False)
    buffers = [_bits(valid) if missing else None]
    if kind == pa.string():
        encoded = [b"" if value is None else value.encode() for value in values]
        buffers += [array("i", accumulate(map(len, encoded), initial=0)).tobytes(), b"".join(encoded)]
    elif kind == pa.bool_():
        buffers.append(_bits([bool(value) for value in values]))
    else:
        buffers.append(array(_CODES[str(kind)], [0 if value is None else value for value in values]).tobytes())
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, len(values), held, null_count=missing)


def _bits(flags: Sequence[bool]) -> bytes:
    """One bit each, the first the lowest."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits or "0", 2).to_bytes((len(flags) + 7) // 8, "little")
