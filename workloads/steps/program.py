"""A rank's tasks as they are written down: computations one after the other, and whatever runs beside them.

Computations stand on the stream `compute`.  `wait` says what the next one waits for; `done` names what has to have
ended before something may start that needs all computed so far.  Computations with nothing between them become one
task.  Two threads may take turns on the stream: each waits for its own, and needs what it has computed itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.tasks.task import Collective, Compute, Recv, Send, Task

COMPUTE = "compute"


@dataclass
class Thread:
    """What is next waits for; the last computation."""

    waits: dict[str, None] = field(default_factory=dict)
    last: str | None = None

    def copy(self) -> Thread:
        return Thread(dict(self.waits), self.last)


@dataclass
class Program:
    """Of one rank."""

    rank: int
    tasks: list[Task] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _thread: Thread = field(default_factory=Thread)
    _computed: str | None = None  # last, by whichever thread
    _open: Compute | None = None

    def compute(self, kind: str, name: str, ns: float) -> None:
        """`name` tells computations that must not become one, beside their kind."""
        if ns <= 0:
            return
        before = self._open
        same = before is not None and before.kind == kind and before.id.split(".")[0] == name.split(".")[0]
        if before is not None and same and not self._thread.waits:
            duration = round(before.duration_ns + ns, 3)
            self._open = Compute(id=before.id, stream=COMPUTE, after=before.after, kind=kind, duration_ns=duration)
            return
        self._flush()
        after, self._thread.waits = tuple(self._thread.waits), {}
        self._open = Compute(id=self._new(name), stream=COMPUTE, after=after, kind=kind, duration_ns=round(ns, 3))

    def wait(self, *ids: str) -> None:
        """The next computation starts when these have ended."""
        self._thread.waits |= dict.fromkeys(ids)

    def done(self) -> tuple[str, ...]:
        """What has to have ended before whatever needs all that was computed and waited for until here."""
        self._flush()
        return (*((self._thread.last,) if self._thread.last else ()), *self._thread.waits)

    def computed(self) -> tuple[str, ...]:
        """The last computation, if there is one."""
        self._flush()
        return (self._thread.last,) if self._thread.last else ()

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
        return self._add(
            Collective(
                id=self._new(name), stream=stream or group, after=waits, kind=kind, collective=collective, group=group,
                size_bytes=size_bytes, dtype=dtype,
            )
        )  # fmt: skip

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

    @property
    def thread(self) -> Thread:
        """Whose turn it is."""
        self._flush()
        return self._thread

    @thread.setter
    def thread(self, thread: Thread) -> None:
        self._flush()
        self._thread = thread

    def join(self, threads: Sequence[Thread]) -> None:
        """One goes on when all have ended: computations follow each other anyway."""
        self._flush()
        self._thread = Thread({name: None for thread in threads for name in thread.waits}, self._computed)

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
            self._thread.last = self._computed = self._open.id
            self._open = None

    def _new(self, name: str) -> str:
        if name in self._ids:
            raise ValueError(f"two tasks of rank {self.rank} are called {name}")
        self._ids.add(name)
        return name
