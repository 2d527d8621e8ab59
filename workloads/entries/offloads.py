"""Algorithms of which NICs, switches or aggregators do a part."""

from __future__ import annotations

from workloads.base.vocabulary import OPS, SWITCH_OPS
from workloads.entries import collectives as c
from workloads.entries.hosts import (
    ALL_GATHER_RING,
    ALL_REDUCE_RING,
    BROADCAST_TREE,
    DISSEMINATION,
    OPTIMIZER_BY_HOSTS,
    REDUCE_SCATTER_RING,
    REDUCE_TREE,
)
from workloads.entries.kinds import (
    BY_NICS,
    BY_SWITCHES,
    COLLNET,
    MULTICAST,
    NVLS,
    OPTIMIZER,
    SPARSE,
    SPARSE_INPUT,
    TREES,
    offload,
    others,
)

OFFLOADS = (
    offload(
        c.ALL_REDUCE, "in_network", "in_network:AllReduce", "times.switches.in_network:in_network_all_reduce_ns",
        "switches add up fixed-point blocks in slots, and copy the sums to all (SwitchML, "
        "[in-network.md](in-network.md))", wide="BY_SWITCHES", instead=ALL_REDUCE_RING, **{**BY_SWITCHES, **TREES},
    ),
    *(
        offload(
            collective, "in_network", f"in_network:{part}", "times.switches.in_network:in_network_all_reduce_ns",
            summary, wide="BY_SWITCHES", instead=instead, **{**BY_SWITCHES, **TREES},
        )
        for collective, part, summary, instead in (
            (c.REDUCE_SCATTER, "ReduceScatter", "switches add up, and send each part of the sums to the rank whose it "
             "is; all others hear that it is done", REDUCE_SCATTER_RING),
            (c.REDUCE, "Reduce", "switches add up, and send all of it to the first rank", REDUCE_TREE),
        )
    ),
    offload(
        c.BARRIER, "in_network", "in_network:Barrier", "times.switches.in_network:in_network_all_reduce_ns",
        "switches count who is there, and tell all", wide="BY_SWITCHES", instead=DISSEMINATION,
        **{**BY_SWITCHES, "ops": ()},
    ),
    offload(
        c.ALL_REDUCE, "in_network_best_effort", "best_effort:AllReduce",
        "times.switches.in_network:best_effort_all_reduce_ns",
        "likewise in slots that jobs share; blocks that get none are added up by the first rank's host (ATP, "
        "[best-effort.md](best-effort.md))",
        instead=ALL_REDUCE_RING, shared_slots=True, max_ranks=64, **BY_SWITCHES,
        unpredicted="which of its blocks meet in shared slots depends on when each packet comes",
    ),
    offload(
        c.ALL_REDUCE, "collnet_direct", "collnet:AllReduce", "times.nics.collnet:all_reduce",
        "a server's GPUs add up their shares in the scale-up domain, switches the servers' along the rails (NCCL's "
        "CollnetDirect, [in-network.md](in-network.md#with-scale-up-domains))",
        instead=ALL_REDUCE_RING, **COLLNET,
    ),
    offload(
        c.ALL_REDUCE, "collnet_nvls", "collnet_nvls:AllReduce", "times.nics.collnet:nvls_all_reduce",
        "likewise, but the switch of the scale-up domain adds up, and copies (NCCL's NVLS with CollNet)",
        instead=ALL_REDUCE_RING, **COLLNET,
    ),
    offload(
        c.REDUCE_SCATTER, "collnet_direct", "collnet:ReduceScatter", "times.nics.collnet:reduce_scatter",
        "likewise, and each sum goes to the GPU whose it is", instead=REDUCE_SCATTER_RING, **COLLNET,
    ),
    *(
        offload(
            collective, "nvls", f"nvls:{part}", f"times.switches.nvls:{collective.name}_ns", summary, wide=wide,
            instead=instead, ops=SWITCH_OPS if collective.ops else (), **NVLS,
        )
        for collective, part, wide, summary, instead in (
            (c.ALL_REDUCE, "AllReduce", "NVLS_ALL_REDUCE", "each GPU loads its part from the switch of its scale-up "
             "domain, which adds up, and stores it to all: the switch copies (NVLink SHARP, "
             "[in-network.md](in-network.md#inside-a-scale-up-domain))", ALL_REDUCE_RING),
            (c.REDUCE_SCATTER, "ReduceScatter", "NVLS_REDUCE_SCATTER", "the loads alone", REDUCE_SCATTER_RING),
            (c.ALL_GATHER, "AllGather", "NVLS_ALL_GATHER", "the stores alone", ALL_GATHER_RING),
            (c.BROADCAST, "Broadcast", "", "the first rank stores its vector to all", BROADCAST_TREE),
        )
    ),
    others(
        c.ALL_REDUCE, "omnireduce", "sparse.omnireduce:AllReduce", "sparse.closed_form:omnireduce_ns",
        "blocks of zeros are not sent: aggregators add up what is left, as it streams in ([sparse.md](sparse.md))",
        extra=(*SPARSE_INPUT, "fusion", "slots", "aggregators"),
        defaults={**SPARSE_INPUT, "fusion": 4, "slots": 256}, in_turn=True, **SPARSE,
    ),
    others(
        c.ALL_REDUCE, "omniccl", "sparse.omniccl:AllReduce", "sparse.closed_form:omniccl_ns",
        "blocks of zeros are not sent: compute complexes of SmartNICs add up the others ([sparse.md](sparse.md))",
        extra=(*SPARSE_INPUT, "spot", "aggregators"), defaults=SPARSE_INPUT, on_complexes=True, **SPARSE,
    ),
    offload(
        c.ALL_REDUCE, "direct_reduce", "direct_reduce:AllReduce",
        "times.wide.direct_reduce:direct_all_reduce_ns",
        "a ring of NICs that add up what comes in and send it on; only results reach memory (DirectReduce, "
        "[direct-reduce.md](direct-reduce.md))",
        wide="NICS_ALL_REDUCE", instead=ALL_REDUCE_RING, ops=OPS, extra=("compression",), **BY_NICS,
    ),
    offload(
        c.REDUCE_SCATTER, "direct_reduce", "direct_reduce:ReduceScatter",
        "times.wide.direct_reduce:direct_reduce_scatter_ns", "the reducing half of the ring of NICs",
        wide="NICS_REDUCE_SCATTER", instead=REDUCE_SCATTER_RING, ops=OPS, extra=("compression",), **BY_NICS,
    ),
    offload(
        c.ALL_GATHER, "multicast", "multicast:AllGather", "times.switches.multicast:all_gather_ns",
        "every rank sends its part once, switches copy it to all, ring neighbours repair what is lost "
        "([multicast.md](multicast.md))", wide="MULTICAST_ALL_GATHER", extra=("chains", "cutoff", "trees"), **MULTICAST,
    ),
    offload(
        c.BROADCAST, "multicast", "multicast:Broadcast", "times.switches.multicast:broadcast_ns",
        "the first rank sends its vector once, switches copy it to all, ring neighbours repair what is lost",
        wide="MULTICAST_BROADCAST", extra=("cutoff", "trees"), **MULTICAST,
    ),
    offload(
        c.ALL_GATHER, "direct_reduce", "direct_reduce:AllGather",
        "times.wide.direct_reduce:direct_all_gather_ns",
        "the gathering half of the ring of NICs", instead=ALL_GATHER_RING, **BY_NICS, wide="NICS_ALL_GATHER",
    ),
    OPTIMIZER_BY_HOSTS,
    offload(
        c.OPTIMIZER_STEP, "optimus_nic", "optimizer_step:OptimusNic", "times.wide.direct_reduce:optimus_nic_ns",
        "a ring of NICs, which keep the parameters and what the optimizer remembers (OptimusNIC)",
        wide="NICS_OPTIMIZER", instead=OPTIMIZER_BY_HOSTS, engines=True, **OPTIMIZER,
    ),
)  # fmt: skip
