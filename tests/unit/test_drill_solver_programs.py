"""What the solver makes of RDMA's own programs, by what they print: on lines, without a fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from drills.session import Answer
from drills.solve import verbs
from drills.solve.operator import Operator
from tests.recorded import NOW_NS, Recorded, nics

PLENTY = {"budget": {"emulated_ns": 10**9}}
MTU, GID = "\t\t\tactive_mtu:\t\t{} (5)", "\t\t\tGID[  0]:\t\t::ffff:10.0.0.{}, RoCE v{}"
PINGPONG = "20971520 bytes in 0.01 seconds = {:.2f} Mbit/sec"
"""As libibverbs' examples print it (rdma-core, libibverbs/examples: devinfo.c, rc_pingpong.c)."""


class Programs(Recorded):
    """`slow`: pairs that bring half; `odd`: of a rank what its NIC says of itself."""

    def __init__(
        self,
        ticket: Mapping[str, Any] = PLENTY,
        slow: Iterable[tuple[int, int]] = (),
        odd: Mapping[int, tuple[int, int]] | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(shown or {})
        self.of_ticket, self.slow, self.odd = dict(ticket), set(slow), odd or {}
        self.ran: list[str] = []

    def command(self, line: str) -> Answer:
        if line == "ticket":
            return Answer(True, NOW_NS, "", {"question": self.question, "sealed": "5e", **self.of_ticket})
        if not line.startswith("exec "):
            return super().command(line)
        self.ran.append(line)
        ranks = [int(word) for word in line[5:].partition(" -- ")[0].split()]
        if "pingpong" in line:
            (a, b) = ranks
            said = [PINGPONG.format(45_000 if (a, b) in self.slow else 90_000)]
        else:
            mtu, version = self.odd.get(ranks[0], (4096, 2))
            said = [MTU.format(mtu), GID.format(ranks[0], version)]
        return Answer(True, NOW_NS, "", {"says": [{"says": text} for text in said]})

    def ticket(self) -> dict[str, Any]:
        return self.of_ticket


def named(session: Programs) -> list[str]:
    op = Operator(session)
    return [str(found) for rule in verbs.LAST for found in rule(op)]


@pytest.mark.parametrize(
    ("ticket", "runs"),
    [
        ({}, False),
        ({"budget": {"emulated_ns": 10**9 - 1}}, False),
        (PLENTY, True),
        ({"budget": None, "clock": "real"}, True),
    ],
)
def test_programs_are_for_those_who_have_plenty_of_time(ticket: dict[str, Any], runs: bool) -> None:
    assert named(session := Programs(ticket)) == []
    assert len(session.ran) == (8 + 8) * runs  # each NIC, and of each leaf's four a ring


RING = [(0, 1), (1, 2), (2, 3), (0, 3)]


@pytest.mark.parametrize(
    ("slow", "answer"),
    [
        ([(1, 2), (2, 3)], ["slow_pcie@nic:2"]),
        ([(4, 5), (4, 7)], ["slow_pcie@nic:4"]),
        (RING, ["reduced_rate@switch:leaf0"]),
        ([(0, 1), (2, 3)], []),
        ([], []),
    ],
)
def test_what_all_slow_pairs_share_is_named(slow: list[tuple[int, int]], answer: list[str]) -> None:
    assert named(Programs(slow=slow)) == answer


def test_where_frames_are_lost_rates_say_nothing() -> None:
    assert named(Programs(slow=RING, shown=nics(retransmitted={5: 1}))) == []


@pytest.mark.parametrize(("says", "answer"), [((1024, 2), ["small_mtu@nic:6"]), ((4096, 1), ["wrong_gid_index@nic:6"])])
def test_a_nic_that_says_something_else_than_the_others_is_named(says: tuple[int, int], answer: list[str]) -> None:
    assert named(Programs(odd={6: says})) == answer
