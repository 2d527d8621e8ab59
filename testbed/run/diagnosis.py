"""Diagnosis of a run that failed: from the symptoms that were seen to the cause.

One cause has many symptoms: a missing flow makes frames vanish, then a queue pair gives up, then a worker reports that
and ends, then the others wait in vain. `diagnose` looks for causes first and for their effects last.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.base.errors import Problem
from testbed.base.text import printable
from testbed.fabric.waits import ranks
from testbed.machine.processes import ended
from topologies import Fabric

_TAIL_LINES = 5
_WAITING = 4  # ranks of which it is said for whom they wait
_OVS = ("ovs-vswitchd_died", "ovs-vswitchd_stopped", "ovsdb-server_died")
_FATAL = ("worker_lost", "worker_hung", "stalled", "qp_error", "ovs_lost", "part_lost", "own_failed", *_OVS)
STATUS = {5: "flushed", 10: "remote access error", 12: "transport retries exceeded", 13: "receiver never ready"}


@dataclass
class Symptoms:
    """What was seen while the run went on, and fabricd's counters after it."""

    events: list[dict[str, Any]] = field(default_factory=list)  # of fabricd and of the testbed, in order of arrival
    errors: list[dict[str, Any]] = field(default_factory=list)  # `error` lines of workers, each with its `rank`
    exits: dict[int, int] = field(default_factory=dict)  # rank -> return code, negative: signal
    sharing: dict[int, list[int]] = field(default_factory=dict)  # rank -> all ranks of its process, if there are more
    done: set[int] = field(default_factory=set)  # ranks that have reported that they are done
    absent: dict[int, str] = field(
        default_factory=dict
    )  # ranks that will never reach fabricd, and why they were given up
    waiting: dict[int, dict[str, Any]] = field(default_factory=dict)  # rank -> which of its tasks wait, and for whom
    lossy: bool = False  # frames without a flow kept coming
    fabricd_gone: str = ""  # in words: how it ended, or why it was given up
    fabricd_exit: int | None = None
    counters: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """Whether the symptoms mean that the run cannot be completed."""
        return bool(self.errors or self.absent or self.lossy or self.fabricd_gone) or any(
            True for _ in (*self.of_kind(*_FATAL), *self.deadlocks(), *self.crashed())
        )

    @property
    def conclusive(self) -> bool:
        """Whether further symptoms could not tell more about the cause."""
        return bool(self.absent or self.lossy or self.fabricd_gone) or any(
            (*self.of_kind("worker_hung", "part_lost", "own_failed", *_OVS), *self.deadlocks())
        )

    def of_kind(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Events of these kinds, without those of ranks that were done already."""
        return (e for e in self.events if e["event"] in kinds and e.get("rank") not in self.done)

    def deadlocks(self) -> Iterator[dict[str, Any]]:
        """Deadlocks that no watchdog breaks."""
        return (e for e in self.of_kind("deadlock") if not e.get("watchdog"))

    def asked_for(self, what: str, rank: int) -> str:
        """The fault that did this to the rank's worker; empty if none did."""
        acts = ((e["fault"], e["spec"]) for e in self.of_kind("act") if e["on"])
        return next((fault for fault, spec in acts if (spec.get("worker"), spec.get("rank")) == (what, rank)), "")

    def crashed(self) -> Iterator[int]:
        """Ranks whose process ended before it was done, and that did not say why."""
        said = {e["rank"] for e in self.errors}
        return (rank for rank in self.exits if rank not in self.done and rank not in said)


def diagnose(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem:
    """Why the run failed. `logs` is where rank<N>.log and fabricd.log are."""
    causes = (
        _open_vswitch,
        _own,
        _part,
        _fabricd,
        _absent,
        _dead_worker,
        _deadlock,
        _hung_worker,
        _no_flow,
        _gave_up,
        _worker_error,
        _stalled,
    )
    found = (cause(symptoms, fabric, logs) for cause in causes)
    problem = next((p for p in found if p), Problem("the run failed for a reason that left no trace"))
    waits = waiting(symptoms)
    return replace(problem, what=f"{problem.what}; {waits}") if waits else problem


def waiting(symptoms: Symptoms) -> str:
    """Which rank waited for which task, and for whom; empty if none said so."""
    said = []
    for rank, line in sorted(symptoms.waiting.items()):
        its = [one for one in line["tasks"] if one["ranks"]]
        if its:
            task, others = its[0]["task"], its[0]["ranks"]
            group = f" of group {task['group']!r}" if task["group"] else ""
            said.append(f"rank {rank} waits for {ranks(others)} in task {task['task']!r} ({task['operation']}{group})")
    more = f"; {len(said) - _WAITING} more" if len(said) > _WAITING else ""
    return "; ".join(said[:_WAITING]) + more


def _open_vswitch(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    event = next(symptoms.of_kind("ovs_lost", *_OVS), None)
    if event is None:
        return None
    name, _, how = event["event"].partition("_")
    what = event.get("reason", "") if name == "ovs" else f"{name} {'is stopped' if how == 'stopped' else 'has ended'}"
    return Problem(f"{what} while the run went on", "Open vSwitch", _see(logs, "ovs-vswitchd.log"))


def _own(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    """Code of a user's own file, which fabricd has called."""
    event = next(symptoms.of_kind("own_failed"), None)
    if event is None:
        return None
    from testbed.own.line import line_of  # with numpy, which a run that goes well imports later

    line = line_of(event["file"], event["offset"]) if event.get("offset") else 0
    where = f"{event['name']}:{line}" if line else event["name"]
    return Problem(f"{event['function']}() {event['reason']}", where, "docs/own-controls.md: what may go wrong")


def _part(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    """A process without which the fabric cannot go on."""
    event = next(symptoms.of_kind("part_lost"), None)
    if event is None:
        return None
    name = event["name"]
    if name.startswith("ovs"):
        return Problem(f"{name} has ended while the run went on", "Open vSwitch", _see(logs, "ovs-vswitchd.log"))
    return Problem(f"{name} (process {event['pid']}) has ended while the run went on", "the fabric's namespaces")


def _fabricd(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    if not symptoms.fabricd_gone:
        return None
    return Problem(
        f"fabricd, the emulated hardware, {symptoms.fabricd_gone} while the run went on",
        "fabricd",
        _see(logs, "fabricd.log"),
    )


def _absent(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    if not symptoms.absent:
        return None
    first, why = next(iter(symptoms.absent.items()))
    what = f"{ranks(list(symptoms.absent))} did not start: fabricd heard nothing from the worker ({why})"
    return Problem(what, _place(first, fabric), _see(logs, f"rank{first}.log"))


def _dead_worker(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    """A worker that died or broke the protocol; of several the first that fabricd lost."""
    first = next((e for e in symptoms.events if e["event"] in ("worker_lost", "deadlock")), None)
    if first in list(symptoms.deadlocks()):
        return None  # the deadlock is the cause: requests that it blocks end workers
    said = {e["rank"] for e in symptoms.errors}
    lost = {e["rank"]: e.get("reason", "") for e in symptoms.of_kind("worker_lost") if e["rank"] not in said}
    rank = next(iter(lost), next(symptoms.crashed(), None))
    if rank is None:
        return None
    code = symptoms.exits.get(rank)
    how = "the worker's session with fabricd ended" if code is None else f"the worker {ended(code)}"
    reason = f" ({lost[rank]})" if lost.get(rank) else ""
    hint = _see(logs, f"rank{rank}.log")
    if fault := symptoms.asked_for("kill", rank):
        hint = f"fault {fault} of the experiment killed it; {hint}"
    elif code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        hint = f"if nobody killed it, it may have run out of its memory limit (workers.memory); {hint}"
    if code is not None and rank in symptoms.sharing:
        others = f"ranks {symptoms.sharing[rank][0]} to {symptoms.sharing[rank][-1]} share the process"
        hint = f"{others}; with workers.ranks_per_process: 1 it is seen which of them it is; {hint}"
    return Problem(f"rank {rank}: {how} before it was done{reason}", _place(rank, fabric), hint)


def _deadlock(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    event = next(symptoms.of_kind("deadlock"), None)
    if event is None:
        return None
    circle = [f"{p['switch']} port {p['port']}" for p in event["ports"]]
    what = f"deadlock: buffers wait for each other in class {event['ports'][0]['class']}: {' -> '.join(circle)}"
    return Problem(
        what,
        circle[0],
        "on a torus or ring control.dateline keeps buffers free of circles; fabric.switch.watchdog can break one",
    )


def _hung_worker(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    hung = next(symptoms.of_kind("worker_hung"), None)
    if hung is None:
        return None
    rank = hung["rank"]
    why = f": {hung['reason']}" if hung.get("reason") else ""
    what = f"rank {rank}: the worker hangs: it neither waits for the network nor says anything{why}"
    hint = _see(logs, f"rank{rank}.log")
    if fault := symptoms.asked_for("freeze", rank):
        hint = f"fault {fault} of the experiment holds it; {hint}"
    return Problem(what, _place(rank, fabric), hint)


def _no_flow(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    """Frames that no flow forwarded, so that something else gave up."""
    drops = [d for d in (symptoms.counters or {}).get("drops", []) if d["reason"] == "forwarding"]
    if not drops:  # without counters: events report the first one of each switch and port
        drops = [
            {"node": e["switch"], "port": e["port"], "count": 1, "headers": e.get("headers", "")}
            for e in symptoms.of_kind("forwarding_drop")
        ]
    if not drops:
        return None
    worst = max(drops, key=lambda d: d["count"])
    others = len(drops) - 1
    more = f"; so it was at {others} more port{'s' if others > 1 else ''}" if others else ""
    times = f"{worst['count']} times" if worst["count"] > 1 else "once"
    return Problem(
        f"switch {worst['node']} has no flow that forwards frames that came in on port {worst['port']} "
        f"({times}, the last one: {worst['headers']}){more}",
        f"switch {worst['node']}, port {worst['port']}",
        f"`testbed show flows` of the run: does none of {worst['node']} match them, or does one drop them?",
    )


def _gave_up(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    event = next(symptoms.of_kind("qp_error"), None)
    if event is None:
        return None
    rank, peer, status = event["rank"], event.get("peer"), event.get("status")
    why = STATUS.get(status, f"status {status}") if isinstance(status, int) else str(status)
    drops = [d for d in (symptoms.counters or {}).get("drops", []) if d["reason"] != "forwarding"]
    worst = max(drops, key=lambda d: d["count"], default=None)
    hint = "look at the frames dropped, `testbed show run` lists them"
    if worst is not None:
        hint = f"most frames were lost at {worst['node']} port {worst['port']} ({worst['reason']}, {worst['count']})"
    return Problem(f"rank {rank}: the queue pair to rank {peer} gave up: {why}", _place(rank, fabric), hint)


def _worker_error(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    if not symptoms.errors:
        return None
    line = symptoms.errors[0]
    rank, peer = line["rank"], line.get("peer")
    to = f" (peer: rank {peer})" if peer is not None else ""
    what = f"rank {rank}: {line.get('what', 'the worker reported an error')}{to}"
    return Problem(what, _place(rank, fabric), line.get("hint") or _see(logs, f"rank{rank}.log"))


def _stalled(symptoms: Symptoms, fabric: Fabric, logs: Path) -> Problem | None:
    event = next(symptoms.of_kind("stalled"), None)
    if event is None:
        return None
    waiting = event.get("waiting", [])
    each = "; ".join(f"rank {w['rank']} waits for {w['waits_for']}" for w in waiting[:4])
    more = f"; {len(waiting) - 4} more" if len(waiting) > 4 else ""
    return Problem(
        f"the run is stuck: nothing is left in the fabric that could wake the workers ({each}{more})",
        _place(waiting[0]["rank"], fabric) if waiting else "",
        "a rank waits for something that no other rank sends",
    )


def _place(rank: int, fabric: Fabric) -> str:
    return f"rank {rank} (NIC {fabric.nics[rank].name})" if rank < len(fabric.nics) else f"rank {rank}"


def _see(logs: Path, name: str) -> str:
    """The log's place in the run folder, and its last lines."""
    try:
        lines = [line for line in (logs / name).read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    tail = printable(" | ".join(line.strip()[:200] for line in lines[-_TAIL_LINES:]))
    return f"logs/{name} of the run ends with: {tail}" if tail else f"logs/{name} of the run is empty"


def _named(row: Mapping[str, Any]) -> str:
    """An operation, for a person."""
    if row["kind"] == "tasks":
        return f"step {row['step']} ({row['algorithm']}), iteration {row['iteration']}"
    return f"{row['collective'] or row['flow']} of {row['size_bytes']} bytes, iteration {row['iteration']}"


def wrong_results(results: Sequence[Mapping[str, Any]]) -> Problem | None:
    """The problem if any result was wrong."""
    bad = [r for r in results if r["wrong"]]
    if not bad:
        return None
    first = bad[0]
    return Problem(
        f"{sum(r['wrong'] for r in bad)} elements are wrong, in {len(bad)} of {len(results)} operations",
        _named(first),
        "the data that arrived differs from what was computed locally",
    )
