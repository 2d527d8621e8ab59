"""What is in a run's frames: one table of columns, from which the frames are built and the documentation is written.

docs/results.md holds the table as Markdown (`as_markdown`); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hardware.tables import entries
from results.frames.arrow import arrow_array

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TEXT = "str"
COUNT = "int64"
MAYBE = "Int64"  # an integer that some rows do not have
REAL = "float64"
BOOL = "bool"


GROWS, MOST = "COUNT", "MOST"
"""Sorts of counters in fabricd's tables: those that only grow are added up, of several MOST the highest is taken."""


@dataclass(frozen=True)
class Column:
    """A column: its pandas dtype, its unit ("" for a number without one or for text) and its meaning.

    `sort`: GROWS or MOST of counters; all else is what a row is about, a setting, or a level at the run's end.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    sort: str = ""


def _numbers(unit: str, sort: str = "", **meanings: str) -> tuple[Column, ...]:
    return tuple(Column(name, COUNT, unit, meaning, sort) for name, meaning in meanings.items())


CLASS = "link/class.def"
_REAL = ("rate_bps", "window_bytes")  # what their columns always were, though fabricd gives whole numbers


def _counted(*files: str, first: str = "", then: Sequence[Column] = ()) -> tuple[Column, ...]:
    """Columns of what fabricd counts by these tables of its sources: those named `first`, `then`, all others."""
    columns = {}
    for _, name, unit, sort, meaning in (entry for file in files for entry in entries(file)):
        name = name.replace("_prioN", "")
        columns[name] = Column(name, REAL if name in _REAL else COUNT, unit, meaning, sort)
    return (*[columns.pop(name) for name in first.split()], *then, *columns.values())


_STEP = Column("step", COUNT, "", "index of the step in the experiment's workload")
_NODE = Column("node", TEXT, "", "switch or NIC")
_PORT = Column("port", COUNT, "", "port number on that node, from 1")

ABOUT: dict[str, str] = {
    "results": "one row per finished operation: an iteration of a collective at one size or of tasks, or a flow",
    "ranks": "one row per operation and rank: what `results` is computed from",
    "timeline": "one row per task of a rank; only of runs whose workload has tasks",
    "ports": "one row per port of a switch or NIC, counted until the run's end",
    "priorities": "one row per port and priority (class) that counted anything",
    "faults": "one row per fault that was injected",
    "nics": "one row per NIC, with the names that mlx5 gives its counters",
    "qps": "one row per queue pair",
    "switches": "one row per switch",
    "accelerators": "one row per accelerator of a switch",
    "flows": "one row per OpenFlow rule that was in a switch at the end",
    "drops": "one row per node, port and reason for which frames were dropped",
    "events": "one row per entry of the event log, in the order in which they were seen",
}

COLUMNS: dict[str, tuple[Column, ...]] = {
    "results": (
        _STEP,
        Column("kind", TEXT, "", "`collective`, `flow`, `program` or `tasks`"),
        Column("collective", TEXT, "", "name of the collective, else missing"),
        Column("flow", TEXT, "", "`FROM->TO`, as ranks (or `nic:RANK.complex`), else missing"),
        Column("group", MAYBE, "", "which of the `groups` of a step did it; missing where there are none"),
        Column(
            "algorithm", TEXT, "", "algorithm of the collective; `write` for a flow, a program's name, the step's name "
            "for tasks"
        ),
        Column("dtype", TEXT, "", "element type of a collective"),
        Column("op", TEXT, "", "reduction of a collective; missing where nothing is reduced"),
        Column("ranks", COUNT, "", "how many ranks took part (2 for a flow)"),
        Column(
            "size_bytes", COUNT, "bytes", "size of the operation as nccl-tests counts it; payload of a flow; of a "
            "program's messages, if it says that"
        ),
        Column("iteration", COUNT, "", "number of the timed iteration, from 0"),
        Column("start_ns", REAL, "ns, emulated", "first rank's call; a flow's start"),
        Column("end_ns", REAL, "ns, emulated", "last rank's return; the sender's last completion"),
        Column(
            "time_ns", REAL, "ns, emulated", "end_ns - start_ns, exact to the picosecond; what one of a program's "
            "messages takes, if it says that"
        ),
        Column("algbw_Bps", REAL, "bytes/s", "size_bytes / time; missing where the time is 0"),
        Column("busbw_Bps", REAL, "bytes/s", "algbw_Bps times the factor of the collective (below)"),
        Column("wrong", COUNT, "elements", "elements that differ from the locally computed result, over all ranks"),
        Column("fallback", TEXT, "", "why the ranks did it by themselves, where an offload could not; else missing"),
        Column("host_ns", REAL, "ns, emulated", "host time of a rank, mean over ranks: posting, waking up, reducing"),
        Column("sent_bytes", REAL, "bytes", "what a rank's NIC put on its cable, mean over ranks (below)"),
        Column(
            "tx_bytes", REAL, "bytes", "sent by a worker of a sparse collective in its messages, mean over the workers"
        ),
        Column("rx_bytes", REAL, "bytes", "received by it, likewise"),
        Column("ideal_ns", REAL, "ns, emulated", "what the flow would take alone ([closed forms](closed-form.md))"),
        Column("slowdown", REAL, "", "time_ns / ideal_ns of a flow"),
        Column(
            "sends_by", TEXT, "", "what its senders send by, where others of the step send by something else "
            "([mixed controls](mixed-controls.md))"
        ),
        Column(
            "together_Bps", REAL, "bytes/s", "of such a flow: its rate while all of the step were under way; missing "
            "where they never were"
        ),
        Column("program", TEXT, "", "of a program: its rank, or `CLIENT->SERVER`; else missing"),
        Column("messages_per_s", REAL, "1/s", "messages per second, where a program says it"),
        Column("code", MAYBE, "", "exit code of a program, negative for a signal; missing where it was ended by us"),
    ),
    "ranks": (
        _STEP,
        Column("kind", TEXT, "", "`collective`, `flow`, `program` or `tasks`"),
        Column("operation", TEXT, "", "name of the collective, `FROM->TO` of a flow, `program NUMBER`, or `tasks`"),
        Column("flow_index", MAYBE, "", "index of the flow in its step; missing for a collective"),
        Column("group", MAYBE, "", "which of the `groups` of a step the rank is in"),
        Column("size_bytes", COUNT, "bytes", "size of the operation"),
        Column("iteration", COUNT, "", "number of the timed iteration, from 0"),
        Column("rank", COUNT, "", "the rank that this row is about"),
        Column("start_ns", REAL, "ns, emulated", "this rank's call"),
        Column("end_ns", REAL, "ns, emulated", "this rank's return"),
        Column("wrong", COUNT, "elements", "wrong elements in this rank's result"),
        Column("fallback", TEXT, "", "why this rank did it without the offload; else missing"),
        Column("host_ns", REAL, "ns, emulated", "of that time: posting, waking up, reducing; missing for a flow"),
        Column("sent_bytes", MAYBE, "bytes", "what its NIC put on its cable meanwhile (below); missing for a flow"),
        Column("tx_bytes", MAYBE, "bytes", "sent by this worker of a sparse collective or a `feed` in its messages"),
        Column("rx_bytes", MAYBE, "bytes", "received by it, likewise"),
    ),
    "timeline": (
        _STEP,
        Column("iteration", COUNT, "", "number of the timed iteration, from 0"),
        Column("rank", COUNT, "", "the rank that carried it out"),
        Column("stream", TEXT, "", "its stream: tasks of a stream run one after the other"),
        Column("task", TEXT, "", "its id, unique among the tasks of its rank"),
        Column("kind", TEXT, "", "what it is for, such as `forward` or `gradients`"),
        Column("operation", TEXT, "", "`compute`, `send`, `recv`, or the collective"),
        Column("group", TEXT, "", "name of the group whose collective or message it is; missing for a compute"),
        Column("peer", MAYBE, "", "rank at the other end of a send or receive"),
        Column("tag", TEXT, "", "of a send or receive: it matches the peer's of the same tag, in order"),
        Column("size_bytes", MAYBE, "bytes", "of a collective or message; missing for a compute"),
        Column("start_ns", REAL, "ns, emulated", "when it was started"),
        Column("end_ns", REAL, "ns, emulated", "when it had ended"),
    ),
    "ports": (
        _NODE,
        _PORT,
        Column("peer", TEXT, "", "`NODE:PORT` at the other end of the cable"),
        *_counted(
            "link/port.def", first="tx_frames rx_frames tx_bytes rx_bytes",
            then=_numbers("frames", GROWS, drops="frames dropped here, for whatever reason"),
        ),
        *_numbers("frames", GROWS, ecn_marked="frames marked CE here",
                  trim_packets="frames that left here [trimmed](trimming.md), as there was no place for all of them"),
        Column("rate_bps", REAL, "bit/s", "its cable's rate at the run's end; missing where it has no cable"),
        Column("tx_Bps", REAL, "bytes/s", "tx_bytes per emulated time of the whole run"),
        Column("rx_Bps", REAL, "bytes/s", "rx_bytes likewise"),
        Column("tx_util", REAL, "", "the share of rate_bps that it sent at, preambles and gaps included, likewise"),
        Column("rx_util", REAL, "", "the share that it received at"),
    ),
    "priorities": (
        _NODE,
        _PORT,
        Column("priority", COUNT, "", "class, as in PFC's frames"),
        *_counted(CLASS, first="tx_packets rx_packets"),
    ),
    "nics": (
        Column("nic", TEXT, "", "name of the NIC"),
        Column("rank", COUNT, "", "rank that drives it"),
        *_counted(
            "nic/counters.def", first="tx_vport_rdma_unicast_packets tx_vport_rdma_unicast_bytes "
                                      "rx_vport_rdma_unicast_packets rx_vport_rdma_unicast_bytes",
        ),
    ),
    "qps": (
        *_numbers("", rank="rank that owns it", qp="its number", peer="rank at the other end", peer_qp="number there"),
        Column("path", TEXT, "", "`network` or `scale_up`"),
        Column("state", TEXT, "", "state at the run's end"),
        *_numbers("", udp_src_port="UDP source port of its packets, by which ECMP tells flows apart"),
        *_counted("transport/counters.def"),
        Column("generated", BOOL, "", "made by a fault's traffic, without a worker"),
        Column("cc", TEXT, "", "congestion control, where it goes by a transport of its own; else its NIC's"),
    ),
    "switches": (
        Column("switch", TEXT, "", "name of the switch"),
        *_counted("switch/counters.def"),
    ),
    "accelerators": (
        Column("switch", TEXT, "", "switch that it hangs on"),
        *_counted(
            "accelerator/counters.def", "accelerator/pool.def",
            first="ip fan_in elements slots slots_free slots_used_max shared_slots shared_used shared_used_max "
                  "contributions duplicates stale unknown",
        ),
    ),
    "flows": (
        Column("switch", TEXT, "", "name of the switch"),
        *_numbers("", table="flow table", priority="the rule of the highest priority that matches is taken"),
        Column("match", TEXT, "", "as ovs-ofctl writes it; empty: any frame"),
        *_numbers("frames", GROWS, packets="frames that met it"),
        *_numbers("bytes", GROWS, bytes="of them, without FCS"),
        *_numbers("frames", GROWS,
                  fast_packets="of those, by the fast path ([fast path](fast-path.md)): depends on the machine"),
        Column("actions", TEXT, "", "what it does with them"),
    ),
    "drops": (
        _NODE,
        _PORT,
        Column("reason", TEXT, "", "as in [buffers](buffers.md)"),
        *_numbers("frames", GROWS, count="how many"),
        Column("headers", TEXT, "", "headers of the last one"),
    ),
    "faults": (
        Column("fault", TEXT, "", "its id"),
        Column("primitive", TEXT, "", "what fabricd was asked for: frames, params, swap, act or traffic"),
        *_numbers("", GROWS, hits="frames that it struck, or times that it went on"),
    ),
    "events": (
        Column("time_ns", REAL, "ns, emulated", "when; missing for what the testbed itself saw"),
        Column("wall_s", REAL, "s, wall", "seconds since the run began"),
        Column("event", TEXT, "", "kind, as in [fabricd's protocol](fabricd-protocol.md), or one of the testbed's own"),
        Column("rank", MAYBE, "", "the rank concerned, if one is"),
        Column("node", TEXT, "", "the switch concerned, if one is"),
        Column("port", MAYBE, "", "its port"),
        Column("detail", TEXT, "", "everything else that the event said, as JSON"),
    ),
}  # fmt: skip

# What a number is that a row does not say: a counter that did not count. Everything else is missing.
_MISSING: dict[str, Any] = {COUNT: 0, BOOL: False}


def _data(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None, list[Any]]]:
    """(column, dtype, values) for all columns of the frame `name`, then for keys of the rows that no column has.

    The latter (dtype None) are there so that nothing measured is lost.
    """
    columns = COLUMNS[name]
    for c in columns:
        yield c.name, c.dtype, [_MISSING.get(c.dtype) if (v := row.get(c.name)) is None else v for row in rows]
    known = {c.name for c in columns}
    for key in dict.fromkeys(k for row in rows for k in row if k not in known):
        yield key, None, [row.get(key) for row in rows]


def units(name: str) -> dict[str, str]:
    """The unit of each column that has one."""
    return {column.name: column.unit for column in COLUMNS[name] if column.unit}


def frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The frame `name` (a key of COLUMNS) with these rows, the documented columns and their dtypes."""
    import pandas as pd

    made = pd.DataFrame({key: pd.Series(values, dtype=dtype) for key, dtype, values in _data(name, rows)})
    made.attrs["units"] = units(name)
    return made


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The same as an Arrow table, for Parquet: a run can so be stored without waiting for pandas to load."""
    import pyarrow as pa

    types = {TEXT: pa.string(), COUNT: pa.int64(), MAYBE: pa.int64(), REAL: pa.float64(), BOOL: pa.bool_()}
    made = pa.table(
        {
            key: pa.array(values) if dtype is None else arrow_array(values, types[dtype])
            for key, dtype, values in _data(name, rows)
        }
    )
    return with_units(made, units(name))


def with_units(data: pa.Table, units: Mapping[str, str]) -> pa.Table:
    """The table with the unit of each column in the metadata of its field, as `unit`: Parquet keeps that."""
    import pyarrow as pa

    fields = [one.with_metadata({"unit": units[one.name]}) if one.name in units else one for one in data.schema]
    return pa.Table.from_arrays(data.columns, schema=pa.schema(fields, data.schema.metadata))


def as_markdown() -> str:
    """The whole table for docs/results.md."""
    parts = []
    for name, columns in COLUMNS.items():
        parts += [f"### `{name}`: {ABOUT[name]}", "", "| column | dtype | unit | meaning |", "|---|---|---|---|"]
        parts += [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} |" for c in columns]
        parts.append("")
    return "\n".join(parts)
