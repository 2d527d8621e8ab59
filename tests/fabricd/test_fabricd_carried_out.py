"""`carried_out`: who has asked for a change is told when everybody concerned has made it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hardware.client import Fabricd
from tests.parts.fabricd_fixture import BareFabric, bare_fabric


@contextmanager
def controller_of(f: BareFabric) -> Iterator[Fabricd]:
    control = Fabricd(f.fabricd.control)
    control.subscribe(settles=True, acts="controller")
    try:
        yield control
    finally:
        control.close()


def acts(control: Fabricd, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < end, f"{count} act events"
        found += [e for e in control.events(0.1) if e["event"] == "act"]
    return found


def inject(f: BareFabric, fault: str, **more: Any) -> None:
    f.fabricd.request("inject", fault=fault, primitive="act", to="controller", spec={"x": 1}, **more)


class Asked:
    """A connection that has asked `carried_out`."""

    def __init__(self, f: BareFabric) -> None:
        self.client = Fabricd(f.fabricd.control)
        self.asked = self.client.ask("carried_out")
        self.other = f.fabricd

    def answered(self) -> bool:
        """fabricd answers when it has read what there is, so it has read the first request before the second one."""
        for _ in range(2):
            self.other.request("status")
        return self.client.answer(self.asked, 0) is not None

    def wait(self) -> None:
        assert self.client.answer(self.asked, 60) is not None, "an answer to `carried_out`"
        self.client.close()


def test_nothing_to_carry_out_is_answered_at_once() -> None:
    with bare_fabric("star", {"hosts": 1}) as f:
        f.fabricd.request("carried_out")


def test_it_is_answered_when_the_controller_has_answered_everything() -> None:
    with bare_fabric("star", {"hosts": 1}) as f, controller_of(f) as control:
        inject(f, "a")
        inject(f, "b")
        first, second = acts(control, 2)
        asked = Asked(f)
        assert not asked.answered()
        control.request("settled", event=second["id"])
        assert not asked.answered()
        control.request("settled", event=first["id"])
        asked.wait()
        f.fabricd.request("heal", fault="a")
        (healed,) = acts(control, 1)
        asked = Asked(f)
        assert not asked.answered()
        control.request("settled", event=healed["id"])
        asked.wait()


def test_a_fault_that_waits_for_a_running_worker_has_not_gone_on_yet() -> None:
    with bare_fabric("star", {"hosts": 1}) as f, controller_of(f) as control:
        w = f.worker(0)
        f.start(0)  # it runs: what is put in now comes after what it does next
        inject(f, "a")
        asked = Asked(f)
        assert not asked.answered()
        w.begin_wait(1, 5_000_000)
        (event,) = acts(control, 1)
        assert not asked.answered()
        control.request("settled", event=event["id"])
        asked.wait()
        w.end_wait()
        w.bye()


def test_what_is_due_later_is_not_waited_for_nor_a_controller_that_goes() -> None:
    with bare_fabric("star", {"hosts": 1}) as f:
        with controller_of(f) as control:
            inject(f, "later", at_ns=1e9)
            f.fabricd.request("carried_out")
            inject(f, "now")
            acts(control, 1)
            asked = Asked(f)
            assert not asked.answered()
        asked.wait()
        assert f.counters()["fidelity"]["controller_timeouts"] == 1


def test_what_somebody_is_told_afterwards_is_not_waited_for() -> None:
    with bare_fabric("star", {"hosts": 1}, clock={"mode": "real", "dilation": 1000}) as f, controller_of(f) as control:
        inject(f, "again", every_ns=20e3, for_ns=10e3)
        (first,) = acts(control, 1)[:1]
        asked = Asked(f)
        last = acts(control, 20)[-1]  # there is no moment at which nobody owes an answer
        assert not asked.answered()
        control.request("settled", event=first["id"])
        before = f.fabricd.request("status")
        assert before["ok"]
        for number in range(first["id"], last["id"]):
            control.request("settled", event=number)
        asked.wait()


def test_a_fault_that_is_healed_before_it_goes_on_is_not_waited_for() -> None:
    with bare_fabric("star", {"hosts": 1}) as f, controller_of(f):
        f.start(0)  # it is not there: time stands still
        inject(f, "a")
        asked = Asked(f)
        assert not asked.answered()
        f.fabricd.request("heal", fault="a")
        asked.wait()


def test_who_goes_away_while_he_waits_leaves_the_others_theirs() -> None:
    with bare_fabric("star", {"hosts": 1}, clock={"mode": "real", "dilation": 1000}) as f, controller_of(f) as control:
        inject(f, "a")
        (event,) = acts(control, 1)
        gone, asked = Asked(f), Asked(f)
        assert not gone.answered()
        gone.client.close()
        assert not asked.answered()
        control.request("settled", event=event["id"])
        asked.wait()
