"""What an operator is told before a cable goes down for longer than queue pairs try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.operate.actions.interfaces import _cut_off, shutdown
from testbed.operate.steps.site import Site
from testbed.operate.steps.steps import Note
from topologies import build
from topologies.graph.fabric import End

FABRIC = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 1})
UPLINK = FABRIC.cable_by_name["leaf0-spine0"]
TRIES_NS = 800_000.0
"""A timeout of 100 us, and seven more."""


def site(reaction_ns: float, drained: tuple[str, ...] = ()) -> Any:
    nics = [{"timeout_ns": 100_000.0, "retry": 7}, {"timeout_ns": 2_000_000.0, "retry": 7}]
    its = SimpleNamespace(fabric=FABRIC, settings=list, drained=lambda: set(drained), down=set)
    its.configured = {"control": {"reaction_ns": reaction_ns}, "nics": nics}
    its.alone = lambda without: Site.alone(its, without)
    its.newly_alone = lambda names: Site.newly_alone(its, names)
    its.reaction_ns, its.gives_up_ns = (prop.fget(its) for prop in (Site.reaction_ns, Site.gives_up_ns))
    return its


def notes(its: Any, *cables: Any, **how: float) -> list[str]:
    return [step.text for step in _cut_off(its, *cables, **how) if isinstance(step, Note)]


@pytest.mark.parametrize(("reaction_ns", "told"), [(TRIES_NS - 1, False), (TRIES_NS, True), (1_000_000.0, True)])
def test_a_controller_that_is_slower_than_the_retries_kills_the_job(reaction_ns: float, told: bool) -> None:
    found = [s.text for s in shutdown(site(reaction_ns), End("leaf0", UPLINK.end("leaf0").port)) if isinstance(s, Note)]
    assert bool(found) == told
    if told:
        (text,) = found
        assert "queue pairs that hear nothing for 800us fail" in text and "route drain" in text


def test_what_is_down_for_a_shorter_time_or_drained_does_not() -> None:
    assert notes(site(1e6), UPLINK, down_ns=100_000) == []
    assert notes(site(1e6, drained=("leaf0-spine0",)), UPLINK) == []


def test_a_host_that_is_cut_off_hears_nothing_until_its_link_is_up() -> None:
    alone, told = notes(site(1.0), FABRIC.cable_by_name["h0-leaf0"], down_ns=1_000_000)
    assert "no other way" in alone and told.startswith("until it is up again, in 1ms,")
