"""RpcNIC: a deserializer that keeps an object together until it crosses PCIe, against one that does not."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

SMALL, LARGE = (f"time of a call of {size}, field by field over as a whole" for size in ("1 KiB", "16 KiB"))


def read(points: Sequence[Point]) -> Made:
    (point,) = points
    return Made(
        {name: point.time_us(2, size) / point.time_us(1, size) for name, size in ((SMALL, 1024), (LARGE, 16384))}
    )


ENTRY = Entry(
    title="Objects cross PCIe as a whole",
    paper="*RPCAcc: A High-Performance and Reconfigurable PCIe-attached RPC Accelerator*, 2024",
    where="abstract",
    link="https://arxiv.org/abs/2411.07632",
    file="../smartnic/rpc-load.yaml",
    values=(Value(SMALL, 2.3, says="about "), Value(LARGE, 2.3, says="about ")),
    read=read,
    why="""Far off, and it shows what our off-path NIC is not: the paper compares with an accelerator whose hardware
    has many small writes under way at once. Ours posts each field's write with a core of its complex, one after the
    other, so that 64 fields cost 64 posts. That keeping objects together is what makes such an offload worth it comes
    out the stronger for it: field by field, the NIC is slower than the host.""",
)
