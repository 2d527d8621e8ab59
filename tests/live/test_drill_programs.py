"""RDMA's own programs at a drill's prompt: what they print, on a world that stands still, and what is refused."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from drills.game import Game
from drills.sheet import file
from drills.sheet.case import Case
from drills.solve.solver import solve
from tests.parts.rdma_programs import require

PRINTED_MBIT = re.compile(r"= ([\d.]+) Mbit/sec")


def game(name: str, *, healthy: bool = False) -> Game:
    require("ibv_rc_pingpong", "ibv_devinfo")
    return Game.start(Case.of(file.load(name), "7Q4", healthy))


def said(played: Game, line: str) -> Any:
    answer = played.command(line)
    assert answer.ok, (line, answer.text)
    return answer.data


def text_of(data: Any, rank: int) -> str:
    return "\n".join(row["says"] for row in data["says"] if row["rank"] == rank)


def test_programs_at_the_prompt_tell_what_is_wrong_and_play_again_to_the_byte() -> None:
    """Two games of one case: whatever the machine does meanwhile, all that follows is the same."""
    digests = []
    for _ in range(2):
        with closing(game("rdma/wrong-gid-index")) as played:
            (cause,) = played.stage.drawn.truth
            bad = int(cause.place.removeprefix("nic:"))
            other = (bad + 1) % 4
            ended = said(played, f"exec {bad} {other} -- ibv_rc_pingpong -g 0")
            assert "Failed to modify QP to RTR" in text_of(ended, bad)
            assert [row["exit"] for row in ended["ended"]] == [1, 1]
            assert "fe80:" in text_of(said(played, f"exec {bad} -- ibv_devinfo -v"), bad)
            before = played.time_ns
            well = said(played, f"exec {other} {(bad + 2) % 4} -- ibv_rc_pingpong -g 0 -n 20")
            assert [row["exit"] for row in well["ended"]] == [0, 0]
            assert PRINTED_MBIT.search(text_of(well, other)) and 0 < played.time_ns - before < 10e6
            digests.append(played.stage.world.digest())
            assert str(cause) in played.command(f"submit {cause}").text
    assert digests[0] == digests[1]


def test_the_operator_finds_lanes_that_are_missing_by_what_programs_print() -> None:
    with closing(game("rdma/half-the-lanes")) as played:
        (cause,) = played.stage.drawn.truth
        assert solve(played) == str(cause) == f"slow_pcie@{cause.place}"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("exec 0 -- bash", "'bash' is no RDMA program"),
        ("exec 0 9 -- ib_write_bw", "there is no rank 9"),
        ("exec 1 1 -- ib_write_bw", "the same NIC"),
        ("exec ib_write_bw", "whose NIC"),
    ],
)
def test_what_cannot_be_run_is_said(shared: Game, line: str, what: str) -> None:
    before = shared.time_ns
    answer = shared.command(line)
    assert not answer.ok and what in answer.text and shared.time_ns == before


@pytest.fixture(scope="module")
def shared() -> Any:
    with closing(game("rdma/wrong-gid-index", healthy=True)) as played:
        yield played
