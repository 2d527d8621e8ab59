"""Players to measure others by, as far as they need no eyes: they answer without having looked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from testbed.drill.session import Session
from testbed.drill.sheet.places import Ground
from testbed.drill.sheet.truth import HEALTHY
from testbed.faults import CATALOGUE
from topologies.graph.fabric import Fabric

Baseline = Callable[[Session], str]
"""Returns its answer."""


def healthy(_: Session) -> str:
    """Says that all is well."""
    return HEALTHY


def at_random(session: Session) -> str:
    """Names one class at one place; in the same world always the same."""
    told = session.state()
    ground = Ground(Fabric.from_dict(told["topology"]), ())
    draw = random.Random(json.dumps([session.ticket()["title"], told["steps"]]))
    every = [place for of in ("cable", "switch", "port", "nic") for place in ground.all_of(of)]
    return f"{draw.choice(list(CATALOGUE))}@{draw.choice(every)}"


BASELINES: dict[str, Baseline] = {"healthy": healthy, "random": at_random}
