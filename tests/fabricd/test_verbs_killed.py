"""Programs that are killed at any moment: nothing of them is left at their NIC, and the next ones run as ever."""

from __future__ import annotations

import random

from tests.parts.rdma_programs import programs_on, require
from tests.prove_program_kills import RANKS, VICTIMS, Place

KILLS = 5
"""As many of `./setup.sh prove program-kills`, which goes on for longer."""


def test_nothing_is_left_of_those_that_are_killed_and_no_other_notices() -> None:
    for argv in VICTIMS:
        require(argv[0])
    draw = random.Random("five")
    with programs_on("star", RANKS) as p:
        place = Place(p)
        for _ in range(KILLS):
            place.kill(draw)
