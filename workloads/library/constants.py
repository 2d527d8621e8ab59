"""The constants of NCCL's tuner, and of NVLS, as its versions have them: facts from src/graph/tuning.cc.

Latencies in us, bandwidths in GB/s.  Rows of latencies: LL, LL128, Simple; of bandwidths: by the GPUs' generation, on
one server, two, more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

Row = tuple[float, float, float]
Table = Sequence[Row]  # by generation: volta, ampere, hopper, blackwell

_NONE: Row = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Constants:
    """Those of a version."""

    base: Mapping[str, Row]
    hop: Mapping[str, Mapping[str, Row]]  # nvlink, pci, net
    ll: Table
    ring_ll128: Table
    tree_ll128: Table
    tree: Table
    nvls_tree: Table | None  # None: no cap, and 5/6 of what is found
    pat: float | None  # factor; None: there is no PAT
    tree_factors: Mapping[str, Sequence[float]]
    ring_ll128_alone: float = 0.92  # with one GPU a server
    both_ways_per_node: bool = False  # a ring's hops between servers: 2 n instead of 2 (n - 1)


_NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
NVLS_EFFICIENCY: Sequence[float] = _NVLS_EFFICIENCY

_LL_FACTORS = (1.0,) * 4 + (0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9) + (1.0,) * 4
_LL128_FACTORS = (1.0,) * 5 + (0.9, 0.8, 0.8, 0.8, 0.7) + (0.6,) * 6 + (0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0)
_SIMPLE_FACTORS = (0.9,) * 7 + (0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9)

_2_21 = Constants(
    base={"tree": (6.8, 14.0, 0.0), "ring": (6.6, 14.0, 8.4)},
    hop={
        "nvlink": {
            **{"tree": (0.6, 1.25, 28.0), "ring": (0.6, 1.9, 3.4), "collnet_direct": (0.0, 0.0, 3.7)},
            **{"collnet_chain": (0.0, 0.0, 2.8), "nvls": (0.0, 0.0, 25.0), "nvls_tree": (0.0, 0.0, 25.0)},
        },
        "pci": {
            **{"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7), "collnet_direct": (0.0, 0.0, 3.7)},
            **{"collnet_chain": (0.0, 0.0, 2.8), "nvls": _NONE, "nvls_tree": _NONE},
        },
        "net": {
            **{"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 14.0), "collnet_direct": (0.0, 0.0, 31.0)},
            **{"collnet_chain": (0.0, 0.0, 30.0), "nvls": (0.0, 0.0, 18.0), "nvls_tree": (0.0, 0.0, 14.0)},
        },
    },
    ll=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (141.0, 45.0, 35.0)),
    ring_ll128=((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (36.7,) * 3),
    tree_ll128=((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (36.7, 36.7, 29.0)),
    tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (38.7, 41.4, 36.0)),
    nvls_tree=None,
    pat=None,
    tree_factors={"ll": _LL_FACTORS, "ll128": _LL128_FACTORS, "simple": _SIMPLE_FACTORS},
    ring_ll128_alone=0.7,
    both_ways_per_node=True,
)


def _with(constants: Constants, **hops: Mapping[str, Row]) -> Mapping[str, Mapping[str, Row]]:
    return {kind: {**its, **hops.get(kind, {})} for kind, its in constants.hop.items()}


_2_23 = replace(
    _2_21,
    base={"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)},
    hop=_with(
        _2_21,
        nvlink={"tree": (0.6, 1.25, 4.0), "pat": (0.0, 0.0, 4.0)},
        pci={"tree": (1.0, 1.9, 4.0), "pat": (0.0, 0.0, 4.0)},
        net={"tree": (5.0, 8.5, 14.0), "pat": (0.0, 0.0, 14.0)},
    ),
    pat=0.85,
    ring_ll128_alone=0.92,
    both_ways_per_node=False,
)
_2_24 = replace(_2_23, pat=0.75)
_2_25 = replace(
    _2_24,
    ll=(*_2_24.ll[:3], (282.0, 90.0, 70.0)),
    ring_ll128=(*_2_24.ring_ll128[:3], (73.4,) * 3),
    tree_ll128=(*_2_24.tree_ll128[:3], (73.4, 73.4, 58.0)),
    tree=(*_2_24.tree[:3], (77.4, 82.8, 72.0)),
)
_2_28 = replace(
    _2_25,
    tree_ll128=(*_2_25.tree_ll128[:3], (55.6, 31.67, 20.0)),
    tree=(*_2_25.tree[:3], (70.0, 42.8, 24.0)),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 43.1)),
)
_2_29 = replace(
    _2_28,
    hop=_with(_2_28, net={"nvls_tree": (0.0, 0.0, 20.9)}),
    ring_ll128=(*_2_28.ring_ll128[:3], (34.5, 34.6, 34.5)),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 43.8)),
    tree_factors={name: (*factors, 0.9 if name == "simple" else 1.0) for name, factors in _2_28.tree_factors.items()},
)
_2_30 = replace(
    _2_29,
    ring_ll128=(*_2_29.ring_ll128[:3], (40.0,) * 3),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
)

_SINCE = (
    ((2, 21), _2_21),
    ((2, 23), _2_23),
    ((2, 24), _2_24),
    ((2, 25), _2_25),
    ((2, 28), _2_28),
    ((2, 29), _2_29),
    ((2, 30), _2_30),
)
OLDEST = "2.21.5"
NEWEST = "2.30.7"


def constants_of(version: Sequence[int]) -> Constants:
    """Those of the version, as of the newest one known that is not newer."""
    return [its for since, its in _SINCE if tuple(version) >= since or since == _SINCE[0][0]][-1]
