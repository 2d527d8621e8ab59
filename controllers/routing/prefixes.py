"""Sets of addresses as few prefixes.

A fabric's addresses encode places, so that destinations reached the same way mostly share a prefix.  `PrefixTree` holds
the addresses once; `cover` takes a set of them (a mask, bit i for the i-th lowest) and gives the fewest prefixes that
hold these and no other NIC.

Prefixes of different sets never overlap.  Shorter tables would come of letting a wide prefix show through where a
narrow one is missing; but then, if a flow is removed, its traffic would not stop but take a wrong path, perhaps a loop.
For the same reason an address that no NIC has cannot circle: where two switches have a prefix for it, one prefix holds
the other, so that it is sent like one and the same NIC, to that NIC's switch, and has no flow there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network


@dataclass(frozen=True, eq=False)
class _Node:
    """The longest prefix that a run of addresses shares, and the run as a mask of bits."""

    network: IPv4Network
    mask: int
    children: tuple[_Node, ...]


class PrefixTree:
    """The binary tree over a sorted list of addresses (32-bit integers, no two the same, at least one)."""

    def __init__(self, addresses: list[int]) -> None:
        self._addresses = addresses
        self.bit = {address: 1 << i for i, address in enumerate(addresses)}
        self._root = self._build(0, len(addresses))

    @property
    def network(self) -> IPv4Network:
        """The longest prefix that all addresses share."""
        return self._root.network

    def cover(self, wanted: int) -> Iterator[IPv4Network]:
        """The fewest prefixes that hold exactly the addresses in the mask `wanted`."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.mask & ~wanted == 0:
                yield node.network
            elif node.mask & wanted:
                nodes.extend(reversed(node.children))

    def _build(self, low: int, high: int) -> _Node:
        first, last = self._addresses[low], self._addresses[high - 1]
        length = 32 - (first ^ last).bit_length()
        network = IPv4Network((first >> (32 - length) << (32 - length), length))
        children: tuple[_Node, ...] = ()
        if high - low > 1:
            branch = 1 << (31 - length)
            middle = next(i for i in range(low, high) if self._addresses[i] & branch)
            children = self._build(low, middle), self._build(middle, high)
        return _Node(network, ((1 << (high - low)) - 1) << low, children)
