"""Small drills as they are written, up to what they ask and allow: a lossy cable in a Clos, and in a star."""

from __future__ import annotations

ALL_ASKED = "question: [healthy, where, what, fix]\n"

_CLOS = """
title: Steps take longer
level: easy
fabric: {{topology: {{clos: {{leaves: 2, spines: 2, hosts_per_leaf: 1}}}}, nic: {{timeout: 50us}}}}
control: {{reaction: 20us}}
job: {{collective: all_reduce, algorithm: ring, size: 32KiB}}
draw: {{bad: {{any: cable, between: [leaf, spine], carries: job}}}}
faults: [{{fault: loss, on: $bad, rate: {rate}}}]
warmup: 50us
begins: 100us
"""

_STAR = """
title: {title}
level: easy
fabric: {{topology: {{star: {{hosts: {hosts}}}}}, nic: {{timeout: 50us}}}}
job: {{collective: all_reduce, algorithm: ring, size: 16KiB}}
draw: {{bad: {{any: cable, carries: job}}}}
faults: [{{fault: loss, on: $bad, rate: 0.2}}]
warmup: 50us
begins: 100us
"""


def clos(rate: float) -> str:
    return _CLOS.format(rate=rate)


def star(hosts: int, title: str = "Steps take longer") -> str:
    return _STAR.format(hosts=hosts, title=title)
