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
ALIKE = 0.8
"""Correlation of what protocols take for the same: they wait for the same barriers, fences, links and proxies, so that
where one takes longer than NCCL believes, the others do."""
OF_PROTOCOLS = ("cta.slice", "nvlink.hop", "net.hop")
MESSAGE_SIGMA = 0.4
"""NCCL's messages are from another processor than the benchmark's."""


@dataclass(frozen=True)
class Prior:
    """`x`, `sigma`, `correlation`: of the constants' logarithms."""

    x: NDArray[Any]
    sigma: NDArray[Any]
    correlation: NDArray[Any]


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
    return Prior(np.log([middle[name] for name in NAMES]), np.array([sigma[name] for name in NAMES]), _correlation())


def _correlation() -> NDArray[Any]:
    its = np.eye(len(NAMES))
    for name in OF_PROTOCOLS:
        of = [NAMES.index(f"{protocol}{name}") for protocol in ("", "ll.", "ll128.")]
        its[np.ix_(of, of)] = np.where(np.eye(len(of)), 1.0, ALIKE)
    return its


def _place(links: Sequence[Link], rate: float) -> str:
    return next(f"{link.file}:{link.line}" for link in links if link.rate_bps == rate)
