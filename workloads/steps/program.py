"""A rank's tasks as they are written down: computations one after the other, and whatever runs beside them.

Computations stand on the stream `compute`.  `wait` says what the next one waits for; `done` names what has to have
ended before something may start that needs all computed so far.  Computations with nothing between them become one
task.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.tasks.task import Collective, Compute, Recv, Send, Task

COMPUTE = "compute"


@dataclass
class Program:
    """Of one rank."""

    rank: int
    tasks: list[Task] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _waits: dict[str, None] = field(default_factory=dict)
    _last: str | None = None
    _open: Compute | None = None

    def compute(self, kind: str, name: str, ns: float) -> None:
        """`name` tells computations that must not become one, beside their kind."""
        if ns <= 0:
            return
        before = self._open
        same = before is not None and before.kind == kind and before.id.split(".")[0] == name.split(".")[0]
        if before is not None and same and not self._waits:
            duration = round(before.duration_ns + ns, 3)
            self._open = Compute(id=before.id, stream=COMPUTE, after=before.after, kind=kind, duration_ns=duration)
            return
        self._flush()
        after, self._waits = tuple(self._waits), {}
        self._open = Compute(id=self._new(name), stream=COMPUTE, after=after, kind=kind, duration_ns=round(ns, 3))

    def wait(self, *ids: str) -> None:
        """The next computation starts when these have ended."""
        self._waits |= dict.fromkeys(ids)

    def done(self) -> tuple[str, ...]:
        """What has to have ended before whatever needs all that was computed and waited for until here."""
        self._flush()
        return (*((self._last,) if self._last else ()), *self._waits)

    def computed(self) -> tuple[str, ...]:
        """The last computation, if there is one."""
        self._flush()
        return (self._last,) if self._last else ()

    def collective(
        self,
        name: str,
        kind: str,
        collective: str,
        group: str,
        size_bytes: int,
        dtype: str,
        *,
        stream: str = "",
        after: tuple[str, ...] | None = None,
    ) -> str:
        """On the group's own stream, unless another is named; behind all computed so far, unless `after` says less."""
        waits = self.done() if after is None else after
        task = Collective(
            id=self._new(name),
            stream=stream or group,
            after=waits,
            kind=kind,
            collective=collective,
            group=group,
            size_bytes=size_bytes,
            dtype=dtype,
        )
        return self._add(task)

    def send(
        self, name: str, kind: str, peer: int, size_bytes: int, group: str, stream: str, after: tuple[str, ...]
    ) -> str:
        """`name` without the rank's own id is the tag."""
        return self._add(
            Send(
                id=self._new(f"{name}.send"), stream=stream, after=after, kind=kind, peer=peer, size_bytes=size_bytes,
                tag=name, group=group,
            )
        )  # fmt: skip

    def receive(self, name: str, kind: str, peer: int, size_bytes: int, group: str, stream: str) -> str:
        return self._add(
            Recv(
                id=self._new(f"{name}.recv"), stream=stream, kind=kind, peer=peer, size_bytes=size_bytes, tag=name,
                group=group,
            )
        )  # fmt: skip

    def finished(self) -> tuple[Task, ...]:
        self._flush()
        return tuple(self.tasks)

    def _add(self, task: Task) -> str:
        self._flush()
        self.tasks.append(task)
        return task.id

    def _flush(self) -> None:
        if self._open is not None:
            self.tasks.append(self._open)
            self._last, self._open = self._open.id, None

    def _new(self, name: str) -> str:
        if name in self._ids:
            raise ValueError(f"two tasks of rank {self.rank} are called {name}")
        self._ids.add(name)
        return name
