"""A world that a keeper holds: the same calls as a World's, over the keeper's socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

from hardware.patience import LOOK_S, Patience
from testbed.base.errors import UserError
from testbed.fabric.lab import Lab
from testbed.fabric.parts import trouble, why_dead
from testbed.faults import CannotInject
from testbed.inject.faults import no_such_fault
from testbed.live.look.steps import Step
from testbed.machine import ownership
from testbed.machine.jsonlines import JsonLines, ready
from testbed.machine.ownership import Record
from testbed.machine.processes import wait_for
from testbed.operate.record import Done, log, read
from testbed.world.condition import parse
from testbed.world.history import Counters, Snapshots
from testbed.world.keeper import LOG, SOCKET

if TYPE_CHECKING:
    from testbed.faults import Injection

_END_S = 5.0  # for the lock of one that has ended to be free
_STILL_S = 5.0  # for the keeper to say that a part stands still


def is_kept(record: Record) -> bool:
    """Whether a keeper holds this fabric's clock."""
    return record.keeper is not None


class Kept:
    """As a context manager it disconnects at the end; the world stays."""

    def __init__(self, lab: Lab) -> None:
        """Raises UserError for a fabric that is not held, or whose keeper is gone."""
        self.lab = lab
        self._steps: list[Step] = []
        record = lab.record
        if not is_kept(record):
            how = "its clock is real" if lab.kernel else "only a run lets its clock go on"
            hint = "testbed up FILE --virtual --job brings one up that is held"
            raise UserError(f"fabric {lab.id} is not held: {how}", hint=hint)
        try:
            self._lines = JsonLines.to(lab.dir / SOCKET, most=None)
        except OSError:
            raise self._gone() from None

    @classmethod
    def attach(cls, fabric_id: str | None = None) -> Self:
        """The held fabric of this id, or the only one that is held. Raises UserError."""
        kept = [record for record in ownership.fabrics() if record.state == "alive" and is_kept(record)]
        record = kept[0] if fabric_id is None and len(kept) == 1 else ownership.find(fabric_id)
        lab = Lab.attach(record.id)
        try:
            return cls(lab)
        except BaseException:
            lab.close()
            raise

    def _gone(self) -> UserError:
        where, record = str(self.lab.dir / LOG), Record.read(self.lab.dir)
        wait_for(lambda: record.state == "dead", _END_S)
        return UserError(f"fabric {self.lab.id} is dead: {why_dead(record)}", where, f"testbed clean {self.lab.id}")

    def _answer(self) -> dict[str, Any]:
        """The keeper's next answer; however long it takes, as long as nothing of the fabric stands still.

        What else stands still than the keeper it says itself, unless it waits for that in another way.
        """
        patience, keeper = Patience(0, _STILL_S), self.lab.record.keeper
        while (answer := self._lines.next()) is None:
            if not ready([self._lines], LOOK_S):
                found = trouble(self.lab.record)
                if found is None or found.over:
                    patience.begin()
                elif patience.look() or (keeper and keeper.stopped()):
                    where = str(self.lab.dir)
                    raise UserError(f"fabric {self.lab.id} cannot go on: {found.what}", where, found.hint)
            elif not self._lines.receive():
                raise self._gone()
        return answer

    def _call(self, call: str, **arguments: Any) -> Any:
        try:
            self._lines.send({"call": call, **arguments})
            answer = self._answer()
        except OSError:
            raise self._gone() from None
        if not answer["ok"]:
            told = answer["error"]
            if "key" in told:
                raise CannotInject(told["what"], told["hint"], told["key"])
            raise UserError.of(told)
        return answer["value"]

    # -- time

    @property
    def time_ns(self) -> int:
        return int(self._call("state")["time_ns"])

    def advance(self, ns: int) -> None:
        self._call("advance", ns=ns)

    def advance_steps(self, count: int, limit_ns: int) -> bool:
        return bool(self._call("advance_steps", count=count, limit_ns=limit_ns))

    def until(self, condition: str, limit_ns: int) -> bool:
        parse(condition)
        return bool(self._call("until", condition=condition, limit_ns=limit_ns))

    # -- reads

    @property
    def steps(self) -> list[Step]:
        self._steps += [Step.from_dict(step) for step in self._call("steps", since=len(self._steps))]
        return self._steps

    @property
    def best_ns(self) -> float | None:
        return cast("float | None", self._call("state")["best_ns"])

    @property
    def errors(self) -> dict[int, str]:
        return {int(rank): why for rank, why in self._call("state")["errors"].items()}

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self._call("events", since=0))

    def counters(self) -> Counters:
        return dict(self._call("counters"))

    def actions(self) -> Sequence[Done]:
        return log(self.lab.dir)

    def history(self) -> Sequence[tuple[int, Counters]]:
        def one(index: int) -> tuple[int, Counters]:
            time_ns, counters = self._call("history_at", index=index)
            return int(time_ns), counters

        return Snapshots(self._call("history"), one)

    def digest(self) -> str:
        return str(self._call("digest"))

    # -- changes

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return dict(self._call("request", op=op, arguments=arguments))

    def settle(self) -> None:
        self._call("settle")

    def restart(self, workload: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._call("restart", workload=None if workload is None else [*workload])

    def put_in(self, injection: Injection, name: str | None = None) -> str:
        return str(self._call("put_in", injection=injection.written(), name=name))

    def take_out(self, name: str) -> list[str]:
        """Raises InputError if there is none of that name."""
        found: list[str] = self._call("take_out", name=name)
        if not found and name != "all":
            raise no_such_fault(name, self)
        return found

    def config(self, words: Sequence[str]) -> list[Done]:
        """As config of operator.py."""
        return [read(done) for done in self._call("config", words=list(words))]

    def hang_up(self) -> None:
        """Whoever waits for an answer in another thread gets none. What was asked for is done all the same."""
        with suppress(OSError):
            self._lines.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._lines.close()
        self.lab.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
