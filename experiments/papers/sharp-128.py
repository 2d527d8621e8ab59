"""SHARP: eight bytes on 128 hosts."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

HOSTS, SWITCHES = "8 bytes on 128 hosts, by hosts", "8 bytes on 128 hosts, by switches"


def read(points: Sequence[Point]) -> Made:
    (point,) = points
    return Made({HOSTS: point.time_us(0), SWITCHES: point.time_us(1)})


ENTRY = Entry(
    title="Switches add up small vectors",
    paper="Graham et al., *Scalable Hierarchical Aggregation Protocol (SHArP): A Hardware Architecture for Efficient "
    "Data Reduction*, COM-HPC 2016",
    where="measured all-reduces",
    values=(Value(HOSTS, 6.01, "us"), Value(SWITCHES, 2.83, "us")),
    read=read,
    why="""The first is no result: the latency of PCIe is chosen so that hosts take what the paper's do. The second is
    what follows then: our accelerators take no time of their own unless told so (`accelerator.latency`), and with 853
    ns in each of two above each other they take the published 2.83 us ([against
    SHARP](in-network.md#against-sharp)).""",
)
