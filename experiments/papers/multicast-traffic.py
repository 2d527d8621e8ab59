"""All-gather by multicast: bytes on all cables, against the ring's."""

from collections.abc import Sequence

from railbed.gallery import ABOUT, Curve, Entry, Made, Point, Value

HOSTS, ALGORITHM = "fabric.topology.star.hosts", "workload.0.algorithm"
HALF = "bytes of the ring over those of multicast, 32 ranks"


def read(points: Sequence[Point]) -> Made:
    sent = {(p.at[ALGORITHM], p.at[HOSTS]): p.run.ports.tx_bytes.sum() for p in points}
    ratio = {n: sent["ring", n] / sent["multicast", n] for n in (4, 8, 16, 32)}
    return Made(
        {HALF: ratio[32]},
        (Curve("here", tuple(ratio.items())), Curve("published, 188 nodes", tuple((n, 2) for n in ratio))),
    )


ENTRY = Entry(
    title="Multicast halves what an all-gather puts on the cables",
    paper="Khalilov et al., *Network-Offloaded Bandwidth-Optimal Broadcast and Allgather for Distributed AI*, SC 2024",
    where="abstract",
    link="https://arxiv.org/abs/2408.13356",
    values=(Value(HALF, 2, says=ABOUT),),
    read=read,
    axes=("ranks", "bytes on cables, ring / multicast"),
    why="""A ring brings each of n parts over 2 (n-1) cables of a star, multicast over n: the ratio is 2 (n-1)/n, less
    what multicast's barrier, larger headers and smaller packets cost. The published figure is of 188 nodes of a fat
    tree, where (n-1)/n is 0.995.""",
)
