"""RpcNIC: a deserializer that keeps an object together until it crosses PCIe, against one that does not."""

from collections.abc import Sequence

from railbed.gallery import ABOUT, Entry, Made, Point, Value

POST = "fabric.nic.complex.post"
NAMES = {
    "10ns": "calls of 1 KiB at a NIC with engines, which posts in 10 ns: field by field over as a whole",
    "200ns": "calls of 1 KiB at a NIC with cores, which posts in 200 ns: field by field over as a whole",
}


def read(points: Sequence[Point]) -> Made:
    return Made({NAMES[p.at[POST]]: p.time_us(2, 1024) / p.time_us(1, 1024) for p in points})


ENTRY = Entry(
    title="Objects cross PCIe as a whole",
    paper="*RPCAcc: A High-Performance and Reconfigurable PCIe-attached RPC Accelerator*, 2024",
    where="abstract",
    link="https://arxiv.org/abs/2411.07632",
    file="../smartnic/rpc-load.yaml",
    change={"sweep": {POST: list(NAMES)}},
    values=tuple(Value(name, 2.3, says=ABOUT) for name in NAMES.values()),
    read=read,
    why="""The published figure is the time in the RPC layer over that of an accelerator which writes field by field.
    How much that costs is what one write costs. Ours have 64 fields of 16 bytes: with engines that post in 10 ns,
    serializing and the way between hosts, which both have, are most of a call; with the cores of a BlueField 64 posts
    are nearly all of it, and the NIC is slower than the host. The paper's objects are not ours.""",
)
