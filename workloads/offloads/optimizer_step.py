"""A data-parallel optimizer step: every rank has gradients, every rank ends with the updated parameters.

Rank i of the group owns the i-th part of the parameters, and what the optimizer remembers of it (as ZeRO-1 has it).
`host`: a ring reduce-scatter, the update by the host at the cost of one reduction for each array that it touches, a
ring all-gather.  `optimus_nic`: a ring of NICs does all of it, with the parameters in their memory (OptimusNIC); the
host posts the gradients and gets parameters.  Both are checked against the same steps computed locally, to
the last bit.

The parameters go on from iteration to iteration; a new size begins with new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import data
from workloads.collectives import ring
from workloads.collectives.engine import Engine
from workloads.collectives.schedule import Shape, spans
from workloads.offloads import direct_reduce
from workloads.offloads.offloaded import Offloaded
from workloads.offloads.optimizers import OPTIMIZERS, Optimizer
from workloads.parts.part import Part, Wanted, drive
from workloads.verbs import FabricError, wire

_SCALE = 2.0**-7  # of the first parameters: small numbers
_DTYPE = "float32"


class _Step(Part):
    """What both ways have in common: gradients, parameters, and what must come out."""

    def setup(self) -> None:
        self.kind = OPTIMIZERS[self.context.options["optimizer"]]
        self.vector = self.context.region("vector")
        self.inputs = data.Inputs(self.context.seed, self.n, self.dtype.name, self.op)
        self.input = self.inputs.of(self.index)
        self.first = data.Inputs(self.context.seed + 1, self.n, self.dtype.name, "sum").of(0) * np.float32(_SCALE)
        self.count = -1

    def prepare(self, size_bytes: int, variant: int) -> None:
        self.start = variant
        if size_bytes // self.input.itemsize != self.count:
            self.count = size_bytes // self.input.itemsize
            self.own = slice(*spans(self.count, self.n)[self.index])
            self.expected = np.empty(self.count, _DTYPE)
            data.fill(self.expected, self.first, 0, self.device.progress)
            self.reference: Optimizer = self.kind()
            self._begin()
        data.fill(self.vector.view(_DTYPE, 0, self.count), self.input, variant, self.device.progress)

    def _begin(self) -> None:
        """New parameters: `expected` has them."""
        raise NotImplementedError

    def _wrong(self, parameters: NDArray[Any]) -> int:
        """Takes the reference a step further, and counts what differs from it in some bit."""
        gradients = np.empty(self.count, _DTYPE)
        data.fill(gradients, self.inputs.reduced, self.start, self.device.progress)
        self.reference.update(self.expected, gradients)
        return int(np.count_nonzero(parameters.view(np.uint32) != self.expected.view(np.uint32)))


class Host(_Step):
    """By the hosts."""

    def setup(self) -> None:
        super().setup()
        largest = Shape(self.n, self.context.largest_bytes // self.input.itemsize)
        self.scatter = Engine(self.context, self.ranks, ring.reduce_scatter, largest, self.input.itemsize, self.tag)
        self.gather = Engine(self.context, self.ranks, ring.all_gather, largest, self.input.itemsize, self.tag + 1)

    def _begin(self) -> None:
        self.parameters = self.expected[self.own].copy()
        self.optimizer: Optimizer = self.kind()

    def prepare(self, size_bytes: int, variant: int) -> None:
        super().prepare(size_bytes, variant)
        for engine in (self.scatter, self.gather):
            engine.prepare(Shape(self.n, self.count))

    def work(self) -> Iterator[Wanted]:
        yield from self.scatter.work(_DTYPE, self.op)
        mine = self.vector.view(_DTYPE, 0, self.count)[self.own]
        if self.op == "avg":
            mine /= np.float32(self.n)
        self.optimizer.update(self.parameters, mine)
        mine[:] = self.parameters
        self.device.spend(self.optimizer.arrays * self.context.costs.reduce_ns(mine.nbytes))
        yield from self.gather.work(_DTYPE, None)

    def handle(self, record: wire.Record) -> None:
        self.scatter.handle(record)

    def finish(self) -> int:
        return self._wrong(self.vector.view(_DTYPE, 0, self.count))


class OptimusNic(_Step, Offloaded):
    """By the NICs; by the hosts if these refuse."""

    def setup(self) -> None:
        super().setup()
        self.result = self.context.region("result")

    def _begin(self) -> None:
        """The NICs load the parameters; a ring is made for each number of them."""
        self.close()
        args = (max(self.count, 1) * 4, wire.ELEMENTS[_DTYPE], 0, self.kind.number)
        self.group = self.device.group("ring", self.tag, self.ranks, args)
        self.fallback = self.group.refused
        self.by_hosts = bool(self.fallback)
        if self.fallback or not self.count:
            return
        self.optimizer: Optimizer = self.kind()
        self.vector.view(_DTYPE, 0, self.count)[:] = self.expected
        drive(self.device, self._post(direct_reduce.LOAD), self.handle)

    def _post(self, collective: int, args: Sequence[int] = ()) -> Iterator[Wanted]:
        request = {"collective": collective, "reduction": self.op, "dtype": _DTYPE, "args": args}
        self._request(self.vector, self.result, self.count, **request)
        self._carried_out = False
        while not self._carried_out:
            yield None

    def _done(self, record: wire.Record) -> None:
        """There is one request at a time."""
        self._carried_out = True

    def _failed(self, why: str) -> None:
        raise FabricError(f"the NICs' parameters are lost: {why}")

    def prepare(self, size_bytes: int, variant: int) -> None:
        super().prepare(size_bytes, variant)
        if self.fallback:
            self._instead().prepare(size_bytes, variant)
        else:
            self.result.view(_DTYPE, 0, self.count).view(np.uint8)[:] = 0xFF

    def work(self) -> Iterator[Wanted]:
        if self.fallback:
            yield from self._instead().work()
        elif self.count:
            yield from self._post(direct_reduce.ALL_REDUCE, self.optimizer.step_args())

    def finish(self) -> int:
        if self.fallback:
            return self._instead().finish()
        return self._wrong(self.result.view(_DTYPE, 0, self.count))
