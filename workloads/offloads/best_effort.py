"""All-reduce in the network by best effort: blocks use slots that all jobs share, or go to a host as they are (ATP).

To a rank it looks as in_network does, fallback included; what the NICs and the parameter server (the host of the first
rank) do is hardware/fabricd/offload/best_effort/best_effort.c and server.c, and the accelerators' part
accelerator/pool.c.
"""

from __future__ import annotations

from workloads.offloads import in_network
from workloads.parts.context import Context


class AllReduce(in_network.AllReduce):
    """One rank's part."""

    kind = "best_effort"

    @staticmethod
    def arguments(context: Context) -> tuple[int, ...]:
        """Of the group: the server's host adds up at its speed of reduction."""
        return (*in_network.AllReduce.arguments(context), int(context.costs.reduce_bps or 0))
