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


COUNTER = "counter"  # only grows: sums of it mean something
WATERMARK = "watermark"  # the most that there ever was: of several the highest


@dataclass(frozen=True)
class Column:
    """A column: its pandas dtype, its unit ("" for a number without one or for text) and its meaning.

    `sort`: COUNTER, WATERMARK, or "" of all else: what a row is about, settings, levels at the run's end.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    sort: str = ""


def _numbers(unit: str, sort: str = "", **meanings: str) -> tuple[Column, ...]:
    return tuple(Column(name, COUNT, unit, meaning, sort) for name, meaning in meanings.items())


def _counters(unit: str, **meanings: str) -> tuple[Column, ...]:
    return _numbers(unit, COUNTER, **meanings)


def _watermarks(unit: str, **meanings: str) -> tuple[Column, ...]:
    return _numbers(unit, WATERMARK, **meanings)


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
        Column("kind", TEXT, "", "`collective`, `flow` or `tasks`"),
        Column("collective", TEXT, "", "name of the collective, else missing"),
        Column("flow", TEXT, "", "`FROM->TO`, as ranks (or `nic:RANK.complex`), else missing"),
        Column("group", MAYBE, "", "which of the `groups` of a step did it; missing where there are none"),
        Column("algorithm", TEXT, "", "algorithm of the collective; `write` for a flow, the step's name for tasks"),
        Column("dtype", TEXT, "", "element type of a collective"),
        Column("op", TEXT, "", "reduction of a collective; missing where nothing is reduced"),
        Column("ranks", COUNT, "", "how many ranks took part (2 for a flow)"),
        Column("size_bytes", COUNT, "bytes", "size of the operation as nccl-tests counts it; payload of a flow"),
        Column("iteration", COUNT, "", "number of the timed iteration, from 0"),
        Column("start_ns", REAL, "ns, emulated", "first rank's call; a flow's start"),
        Column("end_ns", REAL, "ns, emulated", "last rank's return; the sender's last completion"),
        Column("time_ns", REAL, "ns, emulated", "end_ns - start_ns, exact to the picosecond"),
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
    ),
    "ranks": (
        _STEP,
        Column("kind", TEXT, "", "`collective`, `flow` or `tasks`"),
        Column("operation", TEXT, "", "name of the collective, `FROM->TO` of a flow, or `tasks`"),
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
        *_counters("frames", tx_frames="frames sent", rx_frames="frames received"),
        *_counters(
            "bytes", tx_bytes="bytes sent, with FCS, without preamble and gap", rx_bytes="bytes received, likewise"
        ),
        *_counters("frames", drops="frames dropped here, for whatever reason"),
        *_watermarks("bytes", queue_max_bytes="most bytes that ever stood in the output queue"),
        *_counters("frames", ecn_marked="frames marked CE here"),
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
        *_counters("frames", tx_packets="data frames sent", rx_packets="data frames received"),
        *_counters("bytes", tx_bytes="bytes of them, with FCS", rx_bytes="likewise"),
        *_counters(
            "frames",
            tx_pause="XOFF frames sent for it",
            rx_pause="XOFF frames received for it",
            rx_pause_transition="times that a pause of it began",
        ),
        *_counters("us", rx_pause_duration="time that it was paused"),
        *_counters("frames", ecn_marked="frames marked CE", drops="frames dropped"),
        *_counters("bytes", drop_bytes="of those, with FCS"),
        *_watermarks(
            "bytes",
            queue_max_bytes="longest output queue",
            ingress_max_bytes="most of the buffer that came in here ever held",
            headroom_max_bytes="most of its headroom that was ever used",
        ),
        *_counters("", pfcwd_storms="times that the PFC watchdog stepped in"),
    ),
    "nics": (
        Column("nic", TEXT, "", "name of the NIC"),
        Column("rank", COUNT, "", "rank that drives it"),
        *_counters("packets", tx_vport_rdma_unicast_packets="RoCE packets sent through its port: data, ACKs, CNPs"),
        *_counters("bytes", tx_vport_rdma_unicast_bytes="bytes of them, without FCS"),
        *_counters("packets", rx_vport_rdma_unicast_packets="RoCE packets received through it, likewise"),
        *_counters("bytes", rx_vport_rdma_unicast_bytes="bytes of them"),
        *_counters("packets", tx_vport_rdma_multicast_packets="RoCE packets sent to multicast addresses"),
        *_counters("bytes", tx_vport_rdma_multicast_bytes="bytes of them"),
        *_counters("packets", rx_vport_rdma_multicast_packets="RoCE packets received for them"),
        *_counters("bytes", rx_vport_rdma_multicast_bytes="bytes of them"),
        *(Column(name, COUNT, unit, meaning, COUNTER) for _, name, unit, meaning in entries("nic/counters.def")),
        *_numbers("bytes", engine_used_bytes="of the engine's memory in use at the run's end"),
    ),
    "qps": (
        *_numbers("", rank="rank that owns it", qp="its number", peer="rank at the other end", peer_qp="number there"),
        Column("path", TEXT, "", "`network` or `scale_up`"),
        Column("state", TEXT, "", "state at the run's end"),
        *_numbers("", udp_src_port="UDP source port of its packets, by which ECMP tells flows apart"),
        *_counters("packets", tx_packets="packets sent"),
        *_counters("bytes", tx_bytes="bytes sent"),
        *_counters("packets", retransmitted="packets sent again", cnps="congestion notifications received"),
        Column("rate_bps", REAL, "bit/s", "rate that congestion control allowed at the run's end"),
        Column("window_bytes", REAL, "bytes", "window, likewise; 0: none"),
        Column("generated", BOOL, "", "made by a fault's traffic, without a worker"),
    ),
    "switches": (
        Column("switch", TEXT, "", "name of the switch"),
        *_counters("frames", frames_in="frames that came in", forwarding_drops="frames that no flow forwarded"),
        *_watermarks("bytes", buffer_max_bytes="most bytes that ever stood in the buffer"),
        *_numbers("bytes", buffer_bytes="its size", buffer_used_bytes="what stood in it at the run's end"),
    ),
    "accelerators": (
        Column("switch", TEXT, "", "switch that it hangs on"),
        *_numbers("", ip="its address, as a number", fan_in="bits of a slot's bitmap"),
        *_numbers("elements", elements="that it adds of one packet, at most"),
        *_numbers("slots", slots="that can be reserved", slots_free="of them free at the run's end"),
        *_watermarks("slots", slots_used_max="of them in use at a time, at most"),
        *_numbers("slots", shared_slots="that best-effort jobs share", shared_used="of them in use at the run's end"),
        *_watermarks("slots", shared_used_max="of them in use at a time, at most"),
        *_counters(
            "packets",
            contributions="that came to be added up",
            duplicates="of them, that had come before",
            stale="of them, of a use of their slot that is over",
            unknown="that were for no program here",
            completed="sums that became complete",
            answered="sent: sums, and answers to duplicates",
            collisions="best effort: that found their slot taken",
            evicted="best effort: partial sums that made room",
            reclaimed="best effort: slots taken back from jobs that had ended",
            passed="best effort: passed on to the server",
        ),
    ),
    "flows": (
        Column("switch", TEXT, "", "name of the switch"),
        *_numbers("", table="flow table", priority="the rule of the highest priority that matches is taken"),
        Column("match", TEXT, "", "as ovs-ofctl writes it; empty: any frame"),
        *_counters("frames", packets="frames that met it"),
        *_counters("bytes", bytes="of them, without FCS"),
        *_counters(
            "frames", fast_packets="of those, by the fast path ([fast path](fast-path.md)): depends on the machine"
        ),
        Column("actions", TEXT, "", "what it does with them"),
    ),
    "drops": (
        _NODE,
        _PORT,
        Column("reason", TEXT, "", "as in [buffers](buffers.md)"),
        *_counters("frames", count="how many"),
        Column("headers", TEXT, "", "headers of the last one"),
    ),
    "faults": (
        Column("fault", TEXT, "", "its id"),
        Column("primitive", TEXT, "", "what fabricd was asked for: frames, params, swap, act or traffic"),
        *_counters("", hits="frames that it struck, or times that it went on"),
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
}

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
