"""From a step of the plan to the shape that its schedule depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.base.divide import divided
from workloads.base.entry import Algorithm
from workloads.base.uneven import by_weights, uneven
from workloads.base.vocabulary import MOST_PIECES
from workloads.collectives.manner import Manner
from workloads.collectives.schedule import EAGER_BYTES, Shape


def shape_of(entry: Algorithm, ranks: int, size_bytes: int, width: int, options: Mapping[str, Any], seed: int) -> Shape:
    """The shape of a collective of `size_bytes` in elements of `width` bytes.

    `options`: `chunk` (bytes; None: the algorithm's own), `dims`, `senders`, `skew` and `parts`, where the algorithm
    heeds them; `library`: how one carries it out.
    """
    count = size_bytes // width
    chunk = options.get("chunk") if "chunk" in entry.extra else None
    if chunk is None and entry.chunk_bytes:
        chunk = max(entry.chunk_bytes, size_bytes // MOST_PIECES)
    senders = (options.get("senders") or ranks // 2) if "senders" in entry.extra else 0
    counts: tuple[tuple[int, ...], ...] = ()
    if options.get("parts") and "parts" in entry.extra:
        if entry.collective.one_row:
            counts = (tuple(divided(count, options["parts"][0])),)
        else:
            counts = by_weights(options["parts"], ranks, count, senders, entry.collective.transposed)
    elif "skew" in entry.extra:
        counts = uneven(ranks, count, options.get("skew") or 0.0, seed, senders, entry.collective.transposed)
        if entry.collective.one_row:
            counts = counts[:1]
    elements = max(1, chunk // width) if chunk else None
    dims, library = tuple(options.get("dims") or ()), options.get("library")
    manner = Manner(**library) if library and entry.by_library else None
    return Shape(ranks, count, elements, dims, senders, counts, EAGER_BYTES // width, manner)
