"""Algorithms that the hosts carry out."""

from __future__ import annotations

from workloads.base.entry import POWERS
from workloads.entries import collectives as c
from workloads.entries.kinds import (
    BUFFERS,
    CHUNK,
    EVEN_GRID,
    GRID,
    OPTIMIZER,
    PAIR,
    PIECES_OF_PARTS,
    PIPED,
    RAILS,
    SENDERS,
    SKEW,
    hosts,
    others,
)

REDUCE_TREE = hosts(
    c.REDUCE, "binomial_tree", "trees:binomial_reduce", "trees:binomial_reduce",
    "one child after the other, upwards", **CHUNK, wide="TREE_REDUCE",
)  # fmt: skip
BROADCAST_TREE = hosts(
    c.BROADCAST, "binomial_tree", "trees:binomial_broadcast", "trees:binomial_broadcast",
    "one child after the other", **CHUNK, wide="TREE_BROADCAST",
)  # fmt: skip
DISSEMINATION = hosts(
    c.BARRIER, "dissemination", "exchange:dissemination_barrier", "exchange:dissemination_barrier",
    "ceil(log2 n) rounds of empty messages", wide="DISSEMINATION",
)  # fmt: skip
ALL_REDUCE_RING = hosts(
    c.ALL_REDUCE, "ring", "ring:all_reduce", "rings:ring_all_reduce",
    "n - 1 hops that reduce, n - 1 that gather", layout="ring", **CHUNK, wide="ALL_REDUCE_RING",
)  # fmt: skip
REDUCE_SCATTER_RING = hosts(
    c.REDUCE_SCATTER, "ring", "ring:reduce_scatter", "rings:ring_reduce_scatter",
    "the hops that reduce", layout="ring", **CHUNK, wide="REDUCE_SCATTER_RING",
)  # fmt: skip
ALL_GATHER_RING = hosts(
    c.ALL_GATHER, "ring", "ring:all_gather", "rings:ring_all_gather",
    "the hops that gather", layout="ring", **CHUNK, wide="ALL_GATHER_RING",
)  # fmt: skip
OPTIMIZER_BY_HOSTS = others(
    c.OPTIMIZER_STEP, "host", "offloads.optimizer_step:Host", "times.wide.direct_reduce:host_optimizer_step_ns",
    "ring reduce-scatter, each host updates its part, ring all-gather", **OPTIMIZER, wide="HOSTS_OPTIMIZER",
)  # fmt: skip


HOSTS = (
    ALL_REDUCE_RING,
    hosts(
        c.ALL_REDUCE, "bidirectional_ring", "ring:bidirectional_all_reduce", "rings:bidirectional_all_reduce",
        "two rings, half of the vector each, in opposite directions", layout="ring", **CHUNK, wide="BOTH_WAYS",
    ),
    hosts(
        c.ALL_REDUCE, "halving_doubling", "halving:all_reduce", "halving:halving_doubling_all_reduce",
        "log2 p rounds with a partner p/2, p/4, .. away that halve the vector, and the same backwards (Rabenseifner)",
        wide="HALVING_DOUBLING", **CHUNK,
    ),
    hosts(
        c.ALL_REDUCE, "double_binary_tree", "trees:double_binary_all_reduce", "trees:double_binary_tree_all_reduce",
        "two trees, half of the vector each; whoever has children in one is a leaf in the other (NCCL, Sanders et al.)",
        **PIPED,
    ),
    hosts(
        c.ALL_REDUCE, "torus", "grids.torus:all_reduce", "rings:torus_all_reduce",
        "a ring along each dimension in turn: reduce-scatter along all, all-gather back", layout="grid", **CHUNK,
        wide="GRID",
    ),
    hosts(
        c.ALL_REDUCE, "bucket", "grids.torus:bucket_all_reduce", "grids.at_once:bucket_all_reduce",
        "the same in all dimensions and directions at once, a part of the vector each (Jain & Sabharwal, Sack & Gropp)",
        **GRID, **CHUNK,
    ),
    hosts(
        c.ALL_REDUCE, "swing", "grids.swing:all_reduce", "grids.at_once:swing_all_reduce",
        "halving and doubling with near partners, now on one side, now on the other, in all dimensions and directions "
        "at once (De Sensi et al.)", **EVEN_GRID,
    ),
    hosts(
        c.ALL_REDUCE, "swing_latency", "grids.swing:small_all_reduce", "grids.at_once:swing_latency_all_reduce",
        "log2 n of these exchanges, of all that there is", **GRID, lengths=POWERS,
    ),
    hosts(
        c.ALL_REDUCE, "recursive_doubling", "grids.hypercube:all_reduce", "halving:recursive_doubling_all_reduce",
        "log2 p exchanges of the whole vector", wide="WHOLE_DOUBLING",
    ),
    hosts(
        c.ALL_REDUCE, "multi_ring", "ring:rings_all_reduce", "nics.ports:all_reduce",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **PIPED,
    ),
    hosts(
        c.ALL_REDUCE, "rails", "rails:all_reduce", "nics.rails:all_reduce",
        "sums in scale-up domains, rings along all rails, and to all in the domains, at once, piece by piece",
        **RAILS, **PIPED,
    ),
    REDUCE_SCATTER_RING,
    hosts(
        c.REDUCE_SCATTER, "halving", "halving:reduce_scatter", "halving:halving_reduce_scatter",
        "the rounds that halve the vector", **CHUNK, wide="HALVING",
    ),
    hosts(
        c.REDUCE_SCATTER, "pat", "pat:reduce_scatter", "halving:pat_reduce_scatter",
        "a binomial tree for each chunk, the nearest first; a message holds chunks of many (PAT, NCCL 2.23)",
        wide="PAT_REDUCE_SCATTER", **BUFFERS,
    ),
    hosts(
        c.REDUCE_SCATTER, "bucket", "grids.torus:bucket_reduce_scatter", "grids.at_once:bucket_reduce_scatter",
        "a ring along each dimension in turn, in all dimensions and directions at once", **GRID, **CHUNK,
    ),
    hosts(
        c.REDUCE_SCATTER, "swing", "grids.swing:reduce_scatter", "grids.at_once:swing_reduce_scatter",
        "the first half of the all-reduce", **EVEN_GRID,
    ),
    hosts(
        c.REDUCE_SCATTER, "multi_ring", "ring:rings_reduce_scatter", "nics.ports:reduce_scatter",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **PIPED,
    ),
    hosts(
        c.REDUCE_SCATTER, "rails", "rails:reduce_scatter", "nics.rails:reduce_scatter",
        "in scale-up domains and along all rails at once, piece by piece",
        **RAILS, **CHUNK, chunk_bytes=96 << 10,  # a server's first pieces are added up before anything leaves it
    ),
    ALL_GATHER_RING,
    hosts(
        c.ALL_GATHER, "recursive_doubling", "halving:all_gather", "halving:doubling_all_gather",
        "the halving rounds backwards", wide="RECURSIVE_DOUBLING",
    ),
    hosts(
        c.ALL_GATHER, "bruck", "exchange:bruck_all_gather", "halving:bruck_all_gather",
        "ceil(log2 n) rounds for any n (Bruck et al.)", wide="BRUCK",
    ),
    hosts(
        c.ALL_GATHER, "pat", "pat:all_gather", "halving:pat_all_gather",
        "a binomial tree for each chunk, the farthest first; a message holds chunks of many (PAT, NCCL 2.23)",
        wide="PAT_ALL_GATHER", **BUFFERS,
    ),
    hosts(
        c.ALL_GATHER, "bucket", "grids.torus:bucket_all_gather", "grids.at_once:bucket_all_gather",
        "a ring along each dimension in turn, in all dimensions and directions at once", **GRID, **CHUNK,
    ),
    hosts(
        c.ALL_GATHER, "swing", "grids.swing:all_gather", "grids.at_once:swing_all_gather",
        "the second half of the all-reduce", **EVEN_GRID,
    ),
    hosts(
        c.ALL_GATHER, "multi_ring", "ring:rings_all_gather", "nics.ports:all_gather",
        "sixteen rings, a part of the vector each: for NICs with several ports", layout="ports", **PIPED,
    ),
    hosts(
        c.ALL_GATHER, "rails", "rails:all_gather", "nics.rails:all_gather",
        "along all rails and in scale-up domains at once, piece by piece", **RAILS, **PIPED,
    ),
    BROADCAST_TREE,
    hosts(
        c.BROADCAST, "chain", "trees:chain_broadcast", "trees:chain_broadcast",
        "piece by piece through all ranks", layout="ring", **PIPED, wide="CHAIN_BROADCAST",
    ),
    hosts(
        c.BROADCAST, "scatter_all_gather", "exchange:scatter_all_gather_broadcast",
        "exchange:scatter_all_gather_broadcast", "a binomial scatter, then a ring all-gather (van de Geijn)",
        wide="SCATTER_ALL_GATHER", layout="ring",
    ),
    hosts(
        c.BROADCAST, "rails", "rails:broadcast", "nics.rails:broadcast",
        "a share along every rail, from server to server, and to all GPUs there", **RAILS, **PIPED,
    ),
    REDUCE_TREE,
    hosts(
        c.REDUCE, "chain", "trees:chain_reduce", "trees:chain_reduce",
        "piece by piece through all ranks", layout="ring", **PIPED, wide="CHAIN_REDUCE",
    ),
    hosts(c.SCATTER, "linear", "exchange:linear_scatter", "exchange:linear_scatter", "all at once", "LINEAR_SCATTER"),
    hosts(
        c.SCATTER, "binomial_tree", "exchange:binomial_scatter", "trees:binomial_scatter",
        "through the tree, what a child needs in one message", wide="TREE_SCATTER",
    ),
    hosts(c.GATHER, "linear", "exchange:linear_gather", "exchange:linear_gather", "all at once", "LINEAR_GATHER"),
    hosts(
        c.GATHER, "binomial_tree", "exchange:binomial_gather", "trees:binomial_gather",
        "through the tree, what a child has in one message", wide="TREE_GATHER",
    ),
    *(
        entry
        for collective, spread, pairwise, rails, more in (
            (c.ALL_TO_ALL, "SPREAD", "PAIRWISE", "RAILS", {}), (c.ALL_TO_ALL_V, "SPREAD_V", "", "", SKEW)
        )
        for entry in (
            hosts(
                collective, "spread", "exchange:spread_all_to_all", "exchange:spread_all_to_all",
                "all messages at once", spread, **more,
            ),
            hosts(
                collective, "pairwise", "exchange:pairwise_all_to_all", "exchange:pairwise_all_to_all",
                "n - 1 rounds, each to the next but k", pairwise, **more,
            ),
            hosts(
                collective, "rails", "rails:all_to_all", "nics.rails:all_to_all",
                "to another server by the NIC on the receiver's rail, first to its GPU (NCCL's PXN)", rails,
                layout="rails", **more,
            ),
        )
    ),
    hosts(
        c.ALL_TO_ALL, "hypercube", "grids.hypercube:all_to_all", "exchange:hypercube_all_to_all",
        "log2 n exchanges of half a vector, which hand on what is meant for others", wide="HYPERCUBE", lengths=POWERS,
    ),
    hosts(
        c.REDUCE_SCATTER_V, "ring", "ring:reduce_scatter", "rings:ring_reduce_scatter_v", "the hops that reduce",
        layout="ring", **PIECES_OF_PARTS,
    ),
    hosts(
        c.ALL_GATHER_V, "ring", "ring:all_gather", "rings:ring_all_gather_v", "the hops that gather",
        layout="ring", **PIECES_OF_PARTS,
    ),
    hosts(c.ALL_GATHER_V, "bruck", "exchange:bruck_all_gather", "", "ceil(log2 n) rounds for any n", **SKEW),
    hosts(c.SCATTER_V, "linear", "exchange:linear_scatter", "exchange:linear_scatter", "all at once", **SKEW),
    hosts(
        c.SCATTER_V, "binomial_tree", "exchange:binomial_scatter", "trees:binomial_scatter",
        "through the tree, what a child needs in one message", **SKEW,
    ),
    hosts(c.GATHER_V, "linear", "exchange:linear_gather", "exchange:linear_gather", "all at once", **SKEW),
    hosts(
        c.GATHER_V, "binomial_tree", "exchange:binomial_gather", "trees:binomial_gather",
        "through the tree, what a child has in one message", **SKEW,
    ),
    *(
        hosts(
            collective, "write", "exchange:m_to_n", "exchange:m_to_n",
            "all messages at once, each sender beginning with another receiver", **SENDERS,
        )
        for collective in (c.M2N, c.N2M)
    ),
    DISSEMINATION,
    hosts(c.SEND_RECV, "pair", "exchange:pair_send_recv", "exchange:pair_send_recv", "one message", **PAIR),
    hosts(
        c.SEND_RECV, "shift", "exchange:shift_send_recv", "exchange:shift_send_recv", "a message to the next rank",
        wide="SHIFT",
    ),
)  # fmt: skip
