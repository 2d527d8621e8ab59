"""What a cluster's parts take, as a few physical constants; each has a prior, made of NCCL's own constants.

A slice of s bytes keeps its channel's clock (a thread block) for s / cta.rate + cta.slice, then takes nvlink.hop to the
next GPU, or keeps its NIC for net.message + s / (nic.rate e) and arrives net.hop later.  e is a fact of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

STREAMED = ("ll", "ll128")
"""Protocols whose receiver finds a flag in every line, and hands on a slice while it still comes (GenericOp waits for
slots of what it sends alone, src/device/prims_ll128.h): it is through when it has had the time, and the last line."""
EFFICIENCY = {"simple": 1.0, "ll": 0.5, "ll128": 120 / 128}
"""Of what a protocol sends, how much is data: LL has a flag for every 4 bytes, LL128 8 bytes of every 128."""


class Parameter(NamedTuple):
    """`prior`: the middle; `sigma`: of its logarithm."""

    unit: str
    prior: float
    sigma: float
    text: str


PARAMETERS: Mapping[str, Parameter] = {
    "launch": Parameter("ns", 6600.0, 0.4, "from the call to the first slice, once"),
    "nic.rate": Parameter("bps", 392e9, 0.1, "payload that a NIC carries"),
    "cta.rate": Parameter("bps", 170e9, 0.25, "what a thread block copies or adds up (Simple)"),
    "cta.slice": Parameter("ns", 1000.0, 0.7, "a thread block, of every slice (Simple)"),
    "nvlink.hop": Parameter("ns", 2400.0, 0.8, "to another GPU of the server (Simple)"),
    "nvlink.rate": Parameter("bps", 2900e9, 0.1, "of a GPU into its scale-up domain"),
    "net.message": Parameter("ns", 100.0, 1.0, "a NIC, of every message"),
    "net.hop": Parameter("ns", 10000.0, 0.4, "to a GPU of another server (Simple)"),
    "ll.cta.rate": Parameter("bps", 40e9, 0.4, "likewise of LL"),
    "ll.cta.slice": Parameter("ns", 300.0, 0.7, "likewise of LL"),
    "ll.nvlink.hop": Parameter("ns", 600.0, 0.8, "likewise of LL"),
    "ll.net.hop": Parameter("ns", 4500.0, 0.4, "likewise of LL"),
    "ll128.cta.rate": Parameter("bps", 120e9, 0.3, "likewise of LL128"),
    "ll128.cta.slice": Parameter("ns", 500.0, 0.7, "likewise of LL128"),
    "ll128.nvlink.hop": Parameter("ns", 1900.0, 0.8, "likewise of LL128"),
    "ll128.net.hop": Parameter("ns", 7000.0, 0.4, "likewise of LL128"),
    "nvls.rate": Parameter("bps", 2300e9, 0.2, "of a GPU from and to the switch that adds up (NVLink SHARP)"),
    "nvls.hop": Parameter("ns", 8000.0, 0.5, "there and back"),
    "p2p.rate": Parameter("bps", 170e9, 0.3, "of a channel of point-to-point messages by itself"),
    "p2p.turn": Parameter("ns", 2000.0, 0.7, "a host's proxy, of each chunk, for every channel that it has under way"),
}

Value = Any
"""A number, or an array of as many as there are cases."""


@dataclass(frozen=True)
class Costs:
    """Values of PARAMETERS by their names: bit/s and ns.  Each may be an array: then times are arrays as well."""

    of_name: Mapping[str, Value]

    @classmethod
    def of(cls, values: Mapping[str, Value] | None = None) -> Costs:
        """What is left out is the prior's middle.  Raises KeyError for a name that is none."""
        values = values or {}
        if unknown := set(values) - set(PARAMETERS):
            raise KeyError(f"no parameter: {', '.join(sorted(unknown))}")
        return cls({name: values.get(name, its.prior) for name, its in PARAMETERS.items()})

    def __getitem__(self, name: str) -> Value:
        return self.of_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.of_name)

    @property
    def cases(self) -> int:
        """How many at once; 0: single numbers."""
        import numpy as np  # slow to import

        return max((len(value) for value in self.of_name.values() if np.ndim(value)), default=0)


@dataclass(frozen=True)
class Protocol:
    """A protocol's share of the costs, as columns: (cases, 1, 1).  Rates in ns per byte."""

    name: str
    launch: Value
    byte: Value  # of a thread block
    slice: Value
    nvlink: Value
    link_byte: Value
    message: Value
    net_byte: Value
    net: Value
    near_byte: Value = 0.0
    """Of a message on its way in the server, where the fabric takes it by itself."""

    @classmethod
    def of(cls, costs: Costs, name: str) -> Protocol:
        import numpy as np

        def column(key: str) -> Value:
            return np.asarray(costs[key], dtype=float).reshape(-1, 1, 1)

        own = "" if name == "simple" else f"{name}."
        return cls(
            name,
            column("launch"),
            8e9 / column(f"{own}cta.rate"),
            column(f"{own}cta.slice"),
            column(f"{own}nvlink.hop"),
            8e9 / column("nvlink.rate"),
            column("net.message"),
            8e9 / (column("nic.rate") * EFFICIENCY[name]),
            column(f"{own}net.hop"),
        )
