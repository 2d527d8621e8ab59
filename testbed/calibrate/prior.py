"""What is known of the constants before a collective is looked at: NCCL's own, and what single links have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.cluster.model import NAMES, LibraryModel
from testbed.logs.row import Link, Log
from workloads.library.costs import PARAMETERS

LARGE = 1 << 20
"""Bytes of messages that fill a NIC."""
SMALL = 4096
"""Of those that tell how many it can send."""
RATE_SIGMA = 0.03
MESSAGE_SIGMA = 0.4
"""NCCL's messages are from another processor than the benchmark's."""


@dataclass(frozen=True)
class Prior:
    """`x` and `sigma`: of the constants' logarithms."""

    x: NDArray[Any]
    sigma: NDArray[Any]


def prior(model: LibraryModel, log: Log | None = None) -> Prior:
    """Of the cluster whose logs these are."""
    middle = model.priors()
    sigma = {name: its.sigma for name, its in PARAMETERS.items()}
    links = log.links if log else []
    if rates := [link.rate_bps for link in links if link.rate_bps and link.size_bytes >= LARGE]:
        rate = max(rates)
        if log and not 0.25 < rate / model.hardware.nic_bps < 1.02:
            what = f"a link carries {rate / 1e9:.0f} Gb/s, and the NICs are said to have"
            log.warn(_place(links, rate), f"{what} {model.hardware.nic_bps / 1e9:.0f} Gb/s")
        middle["nic.rate"], sigma["nic.rate"] = rate, RATE_SIGMA
    if messages := [link.messages_per_s for link in links if link.messages_per_s and link.size_bytes <= SMALL]:
        middle["net.message"], sigma["net.message"] = 1e9 / max(messages), MESSAGE_SIGMA
    return Prior(np.log([middle[name] for name in NAMES]), np.array([sigma[name] for name in NAMES]))


def _place(links: Sequence[Link], rate: float) -> str:
    return next(f"{link.file}:{link.line}" for link in links if link.rate_bps == rate)
