"""Closed forms over cut-through switches against the definition, packet by packet and link by link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.plan.ideal import Ideal
from testbed.predict.large import of_any_size
from testbed.predict.predict import predict
from workloads.times.messages import Costs, Link, Packets, Path, stages_of

HEADER = 72


def followed(packets: Packets, links: tuple[Link, ...]) -> float:
    """When the last packet has come in: each starts on a link when that is free, and enough of it is there."""
    wires = [packets.first[1], *[packets.middle[1]] * (packets.count - 2), packets.last[1]][: packets.count]
    free = [0.0] * len(links)
    end = 0.0
    for wire in wires:
        ready = 0.0
        for k, link in enumerate(links):
            start = max(ready, free[k])
            end = free[k] = start + wire * 8e9 / link.rate_bps
            cuts = k + 1 < len(links) and link.cuts and links[k + 1].rate_bps <= link.rate_bps
            ready = start + HEADER * 8e9 / link.rate_bps if cuts else end
    return end


rates = st.sampled_from([25e9, 100e9, 400e9])


@given(st.lists(st.tuples(rates, st.booleans()), min_size=1, max_size=5), st.integers(1, 20_000))
def test_messages_over_links_of_any_rates(links: list[tuple[float, bool]], size: int) -> None:
    path = Path(tuple(Link(rate, 0.0, cuts=cuts) for rate, cuts in links), (0.0,) * (len(links) - 1))
    packets = Packets.of(size, Costs(mtu=1024), reth=True, imm=True)
    over = stages_of(path, Costs(), to_memory=False)[1:]
    assert packets.through(over) == pytest.approx(followed(packets, path.links), rel=1e-9)


def test_an_acknowledgement_goes_back_over_the_same_switches() -> None:
    fast, slow = Link(400e9, 0.0, cuts=True), Link(100e9, 0.0, cuts=True)
    path = Path((fast, slow, Link(100e9, 0.0)), (0.0, 0.0))
    # 100 to 100 cuts: a header; 100 to 400 stores
    assert path.back_ns() == pytest.approx(HEADER * 0.08 + 86 * 0.08 + 86 * 0.02)


TEXT = """name: x
fabric: {topology: {%s}, switch: {cut_through: %s}}
workload: [{collective: all_reduce, sizes: [64KiB]}]
"""
CLOS = "clos: {leaves: 2, spines: 1, hosts_per_leaf: 1}"


def test_a_switch_saves_a_packet_without_its_header_each_way() -> None:
    stored, cut = (Ideal(loads(TEXT % (CLOS, word))).time_ns(0, 1, 4096) for word in ("false", "true"))
    assert stored and cut
    assert stored - cut == pytest.approx(3 * (4096 + 82 + 16 + 4 - HEADER + 86 - HEADER) * 0.02)
    stored, cut = (predict(loads(TEXT % (CLOS, word))).figures[0].time_ns for word in ("false", "true"))
    assert stored > cut > stored - 10 * 3 * 84


def test_predictions_of_large_fabrics_say_that_they_have_no_model() -> None:
    with of_any_size(), pytest.raises(InputError, match="cut-through"):
        predict(loads(TEXT % ("clos: {leaves: 256, spines: 16, hosts_per_leaf: 64}", "true")))
