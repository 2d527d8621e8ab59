"""What a collective library takes among all ranks of a large fabric: by its model of equal servers alone.

There the network between servers is a NIC's rate and a hop (workloads/library/times.py); nothing of the fabric's own
cables and switches is looked at beside them, and all have to be alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.base.errors import InputError
from testbed.logs.row import BUSBW, Point
from testbed.plan.library import choice_of, settings_of
from testbed.predict.expected_error import bars_of
from testbed.predict.figure import FORMULA, Figure
from topologies.graph import frames
from workloads.base.entry import NoModel
from workloads.library.costs import Costs
from workloads.library.servers import Servers
from workloads.library.times import time_ns
from workloads.registry import any_of

if TYPE_CHECKING:
    from testbed.experiment import CollectiveStep, Experiment
    from testbed.predict.ground import Turn
    from testbed.predict.large_fabric import LargeFabric


def library_figures(experiment: Experiment, large: LargeFabric, step: CollectiveStep, turn: Turn) -> Iterator[Figure]:
    """The lines of a step.  Raises InputError."""
    library = experiment.library
    assert library is not None
    if large.nics.own is not None:
        what = "there is no model of a library on so large a fabric whose cables differ"
        raise InputError(what, f"{turn.place}.algorithm", "cables that are alike, or name an algorithm")
    spec, ranks = large.spec, large.nics.places.ranks
    gpus = spec.topology.params.get("gpus", 1) if large.domain else 1
    rate, mtu = spec.cable.rate, spec.nic.mtu
    servers = Servers(ranks // gpus, gpus, gpus, rate, library.gpu, library.host, True, library.version)
    network = {"nic.rate": rate * mtu / (mtu + frames.FRAME_BYTES), "net.message": large.costs.post_ns}
    costs, settings, bars = Costs.of({**library.numbers(), **network}), settings_of(library), bars_of(experiment)
    busbw = any_of(step.collective, step.algorithm).collective.busbw.of(ranks)
    for size_bytes in step.sizes:
        choice = choice_of(library, step.collective, size_bytes, servers, turn.place)
        try:
            found = time_ns(step.collective, size_bytes, servers, costs, choice, settings)
        except NoModel as none:
            raise InputError(none.what, turn.place, none.hint) from None
        point = Point(step.collective, servers.nodes, gpus, size_bytes)
        yield Figure(
            step=turn.number,
            name=step.collective,
            algorithm=f"{choice.algorithm}/{choice.protocol}/{choice.channels} (library)",
            ranks=ranks,
            size_bytes=size_bytes,
            time_ns=found,
            how=FORMULA,
            times=step.iterations + step.warmup,
            busbw_factor=busbw,
            paused=large.unseen(step),
            bar=bars.at(point, choice) if bars and step.collective in BUSBW else None,
        )
