"""From what the ranks of a script have recorded to graphs of tasks: one for each kind of step that it does.

A step goes from the end of one optimizer's step to the end of the next.  What comes before the model is first called is
the setup (cut.py).  Steps that are alike and follow each other are one graph, done several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workloads.tasks.graph import Graph, Settings
from workloads.tasks.task import Collective, Compute, Recv, Send, Task
from workloads.torch.cut import parts

Row = Mapping[str, Any]
Members = tuple[int, ...]
TimeNs = Callable[[int, int, str], float]
"""FLOPs, bytes and type of an operation -> how long it takes."""


@dataclass(frozen=True)
class ScriptStep:
    """`times` steps in a row that are alike; `training`: each of them ends with an optimizer's step."""

    name: str
    times: int
    training: bool
    graph: Graph
    part: int = 0  # of the script, counted from the set-up; the first, of steps that are alike
    ideal_ns: float = 0.0  # of all its FLOPs at the GPUs' peak: mean over the ranks


def steps(
    recordings: Sequence[Mapping[str, Any]],
    ranks: Sequence[int],
    time_ns: TimeNs,
    settings: Settings | None = None,
    peak_ns: TimeNs | None = None,
) -> list[ScriptStep]:
    """`recordings[i]` is of the fabric's rank `ranks[i]`; `peak_ns` says what FLOPs take at best.  Raises BadGraph."""
    names = _Groups(recordings, ranks)
    cut = parts([recording["rows"] for recording in recordings], ranks, names.instance)
    graphs: list[ScriptStep] = []
    last = len(cut.rows[0]) - 1
    for k in range(last + 1):
        tasks = {
            rank: tuple(_tasks(its[k], number, ranks, names, time_ns))
            for number, (rank, its) in enumerate(zip(ranks, cut.rows, strict=True))
        }
        training = 0 < k <= cut.steps
        if not any(tasks.values()):
            continue
        if not training and not any(isinstance(t, Collective | Send) for its in tasks.values() for t in its):
            continue
        if graphs and graphs[-1].training and training and graphs[-1].graph.tasks == tasks:
            graphs[-1] = replace(graphs[-1], times=graphs[-1].times + 1)
            continue
        groups = names.used(tasks)
        own_settings = dict.fromkeys(groups, settings) if settings else {}
        name = f"step {k}" if training else "setup" if k < last else "end" if cut.steps else "script"
        ideal = sum(_work_ns(its[k], peak_ns) for its in cut.rows) / len(ranks) if peak_ns else 0.0
        graphs.append(ScriptStep(name, 1, training, Graph(groups, tasks, own_settings), k, ideal))
    return [_named(step) for step in graphs]


def _named(step: ScriptStep) -> ScriptStep:
    if step.times == 1:
        return step
    first = int(step.name.removeprefix("step "))
    return replace(step, name=f"steps {first} to {first + step.times - 1}")


def _work_ns(rows: Sequence[tuple[int, Row]], time_ns: TimeNs) -> float:
    operations = (work for _, row in rows if row["do"] == "compute" for work in row["work"])
    return float(sum(count * time_ns(flops, nbytes, dtype) for flops, nbytes, dtype, count in operations))


class _Groups:
    """Names of groups of ranks.  Groups of one name share no rank, so some get a number behind theirs.

    What a group does from another root has a name of its own, as its ranks come in another order, and is on the group's
    stream all the same: as in NCCL, a group does one thing after the other.
    """

    def __init__(self, recordings: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> None:
        self.tuples: dict[str, list[Members]] = {}
        self._streams: dict[tuple[int, int], str] = {}  # (number of the rank, of its group) -> the group's name
        self._members: dict[tuple[int, int], Members] = {}  # likewise
        self._of: dict[tuple[int, int, int], str] = {}  # (number of the rank, of its group, root) -> name
        active = _active_groups(recordings, ranks)
        for (_, name, members, _), users in active:
            final = self._place(name, members)
            self._streams |= dict.fromkeys(users, final)
            self._members |= dict.fromkeys(users, members)
        for (_, _, members, _), users in active:
            final = self._streams[next(iter(users))]
            for root in sorted(set().union(*users.values())):
                rotated = members[root:] + members[:root]  # the first one is where it starts
                rooted = self._place(f"{final} from {rotated[0]}", rotated) if root else final
                self._of |= {(*user, root): rooted for user in users}

    def _place(self, name: str, members: Members) -> str:
        """The name, with the lowest number under which no other group shares a rank with it."""
        number = 1
        while True:
            candidate = name if number == 1 else f"{name} {number}"
            taken = self.tuples.setdefault(candidate, [])
            if not any(set(members) & set(other) for other in taken):
                taken.append(members)
                return candidate
            number += 1

    def stream(self, number: int, row: Row) -> str:
        return self._streams[number, row["group"]]

    def instance(self, number: int, row: Row) -> object:
        """The same for all ranks of a group, from whatever root."""
        return self.stream(number, row), self._members[number, row["group"]]

    def of(self, number: int, row: Row) -> str:
        return self._of[number, row["group"], row.get("root", 0)]

    def used(self, tasks: Mapping[int, Sequence[Task]]) -> dict[str, tuple[Members, ...]]:
        """Those that tasks name."""
        named = {task.group for its in tasks.values() for task in its if isinstance(task, Collective)}
        return {name: tuple(tuples) for name, tuples in self.tuples.items() if name in named}


def _active_groups(
    recordings: Sequence[Mapping[str, Any]], ranks: Sequence[int]
) -> list[tuple[tuple[int, str, Members, int], dict[tuple[int, int], set[int]]]]:
    """The groups that do something: (first number, name, members, how many of that name and members there were before),
    and who knows each by which number, with the roots that it uses.  All ranks make groups in the same order.
    """
    groups: dict[tuple[str, Members, int], dict[tuple[int, int], set[int]]] = {}
    for number, recording in enumerate(recordings):
        alike: Counter[tuple[str, Members]] = Counter()
        roots: dict[int, set[int]] = {}
        for row in recording["rows"]:
            if row["do"] == "collective":
                roots.setdefault(row["group"], set()).add(row.get("root", 0))
        for group, entry in enumerate(recording["groups"]):
            named = _word(entry["name"]), tuple(ranks[member] for member in entry["members"])
            if group in roots:
                groups.setdefault((*named, alike[named]), {})[number, group] = roots[group]
            alike[named] += 1
    numbered = [((min(group for _, group in users), *key), users) for key, users in groups.items()]
    return sorted(numbered, key=lambda one: one[0])


def _word(name: str) -> str:
    """What torch calls a group, in a word: the dimension of a mesh, or `world` for all."""
    name = name.removeprefix("mesh_")
    return {"default_pg": "world", "undefined": "group", "": "group"}.get(name, name)


def _tasks(
    rows: Sequence[tuple[int, Row]], number: int, ranks: Sequence[int], names: _Groups, time_ns: TimeNs
) -> list[Task]:
    ids: dict[int, str] = {}
    count: Counter[str] = Counter()
    tasks: list[Task] = []
    for place, row in rows:
        kind = row["kind"]
        ids[place] = f"{kind}{count[kind]}"
        count[kind] += 1
        after = tuple(ids[other] for other in row["after"] if other in ids)  # of the step before: all of it is done
        base: dict[str, Any] = {"id": ids[place], "kind": kind, "after": after, "stream": row["stream"]}
        match row["do"]:
            case "compute":
                ns = _work_ns([(place, row)], time_ns)
                tasks.append(Compute(**base, duration_ns=round(ns, 3)))
            case "collective":
                group = names.of(number, row)
                tasks.append(
                    Collective(
                        **base | {"stream": names.stream(number, row)},
                        collective=row["collective"],
                        group=group,
                        size_bytes=row["size_bytes"],
                        dtype=row["dtype"],
                        op=row["op"],
                    )
                )
            case do:
                peer = ranks[row["peer"]]
                base["stream"] = f"{do} {peer}"
                message = {"peer": peer, "size_bytes": row["size_bytes"], "tag": row["tag"]}
                tasks.append((Send if do == "send" else Recv)(**base, **message))
    return tasks
