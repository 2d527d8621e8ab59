"""Time series of a run: fabricd's samples, from their binary file to frames (docs/results.md).

A series has a row for each change of a value: between two rows the value is that of the earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.tables import entries
from results.frames.columns import with_units

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SAMPLES = "samples.bin"
PLACES = "samples.json"
_RECORD = [("t", "<i8"), ("kind", "<u2"), ("cls", "<u2"), ("index", "<u4"), ("value", "<i8")]
_KINDS = {name: int(number) for number, name, _ in entries("control/samples.def")}

SERIES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "queue_depth": (
        "bytes in an output queue",
        (("time_ns", "ns, emulated"), ("node", ""), ("port", ""), ("priority", ""), ("bytes", "bytes")),
    ),
    "buffer_use": ("bytes in a switch's buffer", (("time_ns", "ns, emulated"), ("node", ""), ("bytes", "bytes"))),
    "port_sent": (
        "bytes that a port has sent so far",
        (("time_ns", "ns, emulated"), ("node", ""), ("port", ""), ("bytes", "bytes")),
    ),
    "qp_rate": (
        "what congestion control allows a queue pair",
        (("time_ns", "ns, emulated"), ("rank", ""), ("qp", ""), ("peer", ""), ("rate_bps", "bit/s")),
    ),
    "qp_sent": (
        "payload that a queue pair has put on the wire so far",
        (("time_ns", "ns, emulated"), ("rank", ""), ("qp", ""), ("peer", ""), ("bytes", "bytes")),
    ),
    "qp_in_flight": (
        "payload that a queue pair has sent and that is not acknowledged",
        (("time_ns", "ns, emulated"), ("rank", ""), ("qp", ""), ("peer", ""), ("bytes", "bytes")),
    ),
    "pauses": (
        "every begin (on = 1) and end (on = 0) of a pause, exactly when it was: `node` was paused by `by`",
        (
            ("time_ns", "ns, emulated"),
            ("node", ""), ("port", ""), ("by", ""), ("by_port", ""), ("priority", ""), ("on", ""),
        ),
    ),
    "marks": (
        "frames that a port has marked CE so far",
        (("time_ns", "ns, emulated"), ("node", ""), ("port", ""), ("priority", ""), ("frames", "frames")),
    ),
    "cnps": (
        "congestion notifications that a NIC has sent so far",
        (("time_ns", "ns, emulated"), ("node", ""), ("frames", "frames")),
    ),
}  # fmt: skip


def units(name: str) -> dict[str, str]:
    """The unit of each column of a series that has one."""
    return {column: unit for column, unit in SERIES[name][1] if unit}


def read(samples: Path, places: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """All series in a file that fabricd wrote; `places` is its answer to `sample`. A last half record is left out."""
    import numpy as np

    raw = samples.read_bytes()
    width = np.dtype(_RECORD).itemsize
    records = np.frombuffer(raw[: len(raw) // width * width], dtype=_RECORD).copy()
    records["t"] -= round(places.get("began_ns", 0) * 1000)
    ports = places["ports"]
    qps = {int(r["index"]): (int(r["cls"]), int(r["value"]) & 0xFFFFFFFF, int(r["value"]) >> 32)
           for r in records[records["kind"] == _KINDS["QP"]]}  # fmt: skip

    def of(kind: str) -> Any:
        return records[records["kind"] == _KINDS[kind]]

    frames = {
        "queue_depth": _at_ports(of("QUEUE"), ports, "bytes"),
        "buffer_use": _at_nodes(of("BUFFER"), places["switches"], "bytes"),
        "port_sent": _at_ports(of("PORT_SENT"), ports, "bytes", by_priority=False),
        "qp_rate": _of_qps(of("RATE"), qps, "rate_bps"),
        "qp_sent": _of_qps(of("SENT"), qps, "bytes"),
        "qp_in_flight": _of_qps(of("IN_FLIGHT"), qps, "bytes"),
        "pauses": _pauses(of("PAUSE"), ports),
        "marks": _at_ports(of("MARKED"), ports, "frames"),
        "cnps": _at_nodes(of("CNPS"), places["nics"], "frames"),
    }
    assert all(list(frames[name].columns) == [c for c, _ in columns] for name, (_, columns) in SERIES.items())
    return frames


def store(folder: Path) -> None:
    """Turns the samples in a run's folder into Parquet files, and removes the binary file."""
    samples, places = folder / SAMPLES, folder / PLACES
    if not samples.exists() or not places.exists():
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, data in read(samples, json.loads(places.read_text())).items():
        stored = with_units(pa.Table.from_pandas(data, preserve_index=False), units(name))
        pq.write_table(stored, folder / "metrics" / f"{name}.parquet")
    samples.unlink()
    places.unlink()


def _at_ports(records: np.ndarray, ports: list[Any], value: str, *, by_priority: bool = True) -> pd.DataFrame:
    import pandas as pd

    index = records["index"]
    columns = {
        "time_ns": records["t"] / 1000,
        "node": [ports[i][0] for i in index],
        "port": [ports[i][1] for i in index],
    }
    if by_priority:
        columns["priority"] = records["cls"].astype("int64")
    return pd.DataFrame({**columns, value: records["value"]})


def _at_nodes(records: np.ndarray, nodes: list[str], value: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {"time_ns": records["t"] / 1000, "node": [nodes[i] for i in records["index"]], value: records["value"]}
    )


def _of_qps(records: np.ndarray, qps: Mapping[int, tuple[int, int, int]], value: str) -> pd.DataFrame:
    import pandas as pd

    who = [qps[int(i)] for i in records["index"]]
    return pd.DataFrame(
        {
            "time_ns": records["t"] / 1000,
            "rank": [w[0] for w in who],
            "qp": [w[1] for w in who],
            "peer": [w[2] for w in who],
            value: records["value"],
        }
    )


def _pauses(records: np.ndarray, ports: list[Any]) -> pd.DataFrame:
    import pandas as pd

    index = records["index"]
    return pd.DataFrame(
        {
            "time_ns": records["t"] / 1000,
            "node": [ports[i][0] for i in index],
            "port": [ports[i][1] for i in index],
            "by": [ports[i][2] for i in index],
            "by_port": [ports[i][3] for i in index],
            "priority": records["cls"].astype("int64"),
            "on": records["value"],
        }
    )


def as_markdown() -> str:
    """The table of series for docs/results.md."""
    rows = ["| series | columns | one row for each change of |", "|---|---|---|"]
    for name, (about, columns) in SERIES.items():
        rows.append(
            f"| `{name}` | {', '.join(f'`{c}`' + (f' ({unit})' if unit else '') for c, unit in columns)} | {about} |"
        )
    return "\n".join(rows)
