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
    """A connection that has asked `carried_out`; another request behind it shows that it has no answer yet."""

    def __init__(self, f: BareFabric) -> None:
        self.client = Fabricd(f.fabricd.control)
        self.asked = self.client._ask("carried_out")

    def answered(self) -> bool:
        behind = self.client._ask("status")
        end = time.monotonic() + 60
        while not any(a["id"] == behind for a in self.client._answers):
            assert time.monotonic() < end, "an answer to `status`"
            self.client._receive(0.1)
        return any(a["id"] == self.asked for a in self.client._answers)

    def wait(self) -> None:
        end = time.monotonic() + 60
        while not self.answered():
            assert time.monotonic() < end, "an answer to `carried_out`"
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
