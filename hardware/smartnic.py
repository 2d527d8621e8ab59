"""SmartNIC profiles: what known SmartNICs add to a plain NIC, each figure with its source.

The keys are those of `fabric.nic.engine` (on_path: a reduction in the packet pipeline) and `fabric.nic.complex`
(off_path: a bridge in the NIC and processor cores behind it), the values as they would be written there.  The mark
in front of a source: [P] published, [D] derived from published figures, [?] quoted as the maker's figure but not seen
at its source, [E] an estimate, to be replaced by a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Figure(NamedTuple):
    value: str | float
    source: str


@dataclass(frozen=True)
class Profile:
    """A SmartNIC.  `kind` is on_path or off_path; `figures` has every key of that kind; `pcie` is its host's link."""

    name: str
    kind: str
    summary: str
    figures: Mapping[str, Figure]
    pcie: Figure | None = None

    @property
    def values(self) -> dict[str, str | float]:
        return {key: figure.value for key, figure in self.figures.items()}


_BF2_MANUAL = "[P] BlueField-2 DPU user manual, docs.nvidia.com/networking/display/bluefield2dpuenug/introduction"
_BF3_PAGE = "[P] yobitel.com/knowledge-base/bluefield-3-dpu"
_FPGA_PAPER = "[P] FPGA-based AI Smart NICs, arXiv 2204.10943 (CAL 2022), implementation"

PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile(
            "fpga",
            "on_path",
            "an FPGA between PCIe and the ports, as in the FPGA AI NIC: it adds up as packets pass",
            {
                "reduce": Figure("400Gbps", f"{_FPGA_PAPER}: line rate, at 400 Gb/s as four 512-bit pipes of 100 Gb/s"),
                "packets": Figure(595.2e6, "[D] four pipes, each with the most frames of 64 bytes that 100 Gb/s has"),
                "memory": Figure("6.5MiB", "[?] M20K blocks of an Arria 10 GX 1150: 54,260 Kbit"),
            },
        ),
        Profile(
            "bluefield2",
            "off_path",
            "NVIDIA BlueField-2: eight Cortex-A72, one channel of DDR4",
            {
                "port": Figure("200Gbps", f"{_BF2_MANUAL}: an adapter of up to 200 Gb/s; cards with 100 Gb/s: say so"),
                "rate": Figure("200Gbps", f"[D] ({_BF2_MANUAL[4:]}) what the adapter carries"),
                "delay": Figure("150ns", "[E] once through the card's PCIe switch"),
                "bridge_latency": Figure("300ns", "[E] a flow-table pipeline, as in a small switch"),
                "dma_latency": Figure("300ns", "[E] cores' memory is nearer than the host's (500 ns)"),
                "post": Figure("200ns", "[E] twice the host's: slower cores"),
                "wake": Figure("0ns", "[E] polled, as on the host"),
                "reduce": Figure("200Gbps", "[E] eight cores at 9 GB/s each from the last-level cache, three streams"),
                "cache": Figure("6MiB", "[?] 6 MB of L3"),
                "memory_reduce": Figure(
                    "68Gbps", f"[D] 25.6 GB/s ({_BF2_MANUAL[4:]}: DDR4-3200, 64 bit) in three streams"
                ),
            },
            Figure("252Gbps", f"[D] {_BF2_MANUAL[4:]}: PCIe 4.0, 16 lanes of 16 GT/s, in 128b/130b"),
        ),
        Profile(
            "bluefield3",
            "off_path",
            "NVIDIA BlueField-3: sixteen Cortex-A78, DDR5",
            {
                "port": Figure("400Gbps", f"{_BF3_PAGE}: a port of 400 Gb/s"),
                "rate": Figure("400Gbps", f"[D] ({_BF3_PAGE[4:]}) what the port carries"),
                "delay": Figure("150ns", "[E] once through the card's PCIe switch"),
                "bridge_latency": Figure("300ns", "[E] a flow-table pipeline, as in a small switch"),
                "dma_latency": Figure("250ns", "[E] cores' memory is nearer than the host's (500 ns)"),
                "post": Figure("150ns", "[E] between the host's and BlueField-2's"),
                "wake": Figure("0ns", "[E] polled, as on the host"),
                "reduce": Figure(
                    "850Gbps", "[E] sixteen cores at 20 GB/s each from the last-level cache, three streams"
                ),
                "cache": Figure("16MiB", "[P] emergentmind.com/topics/nvidia-bluefield-3-bf3: 16 MB of shared L3"),
                "memory_reduce": Figure("239Gbps", "[?] DDR5-5600 in 128 bits, 89.6 GB/s, in three streams"),
            },
            Figure("504Gbps", "[D] PCIe 5.0, 16 lanes of 32 GT/s, in 128b/130b"),
        ),
    )
}

KINDS: dict[str, str] = {"on_path": "fpga", "off_path": "bluefield3"}
"""Kinds of SmartNIC and the profile that each takes unless one is named."""


def of_kind(kind: str) -> list[str]:
    """The profiles of a kind, its default first."""
    names = [p.name for p in PROFILES.values() if p.kind == kind]
    return sorted(names, key=lambda name: name != KINDS[kind])


def as_markdown() -> str:
    """The profiles as tables, for docs/smartnics.md."""
    return "\n".join(line for profile in PROFILES.values() for line in _table(profile)).strip()


def _table(profile: Profile) -> Iterator[str]:
    yield f"### `{profile.name}` ({profile.kind}): {profile.summary}"
    yield ""
    yield "| key | value | source |"
    yield "|---|---|---|"
    of_host = {"fabric.nic.pcie.rate": profile.pcie} if profile.pcie else {}
    for key, (value, source) in {**profile.figures, **of_host}.items():
        written = value if isinstance(value, str) else f"{value:g}"
        yield f"| `{key}` | {written} | {source} |"
    yield ""
