"""A process group whose values go over Gloo at once, and whose collectives are recorded for the fabric.

Whatever backend a script names, it gets this one.  It behaves as NCCL does: `wait` holds up the current stream, not the
host.  Only barriers, and what a script reads, hold up the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.futures import Future
from torch.utils._python_dispatch import _disable_current_modes

from workloads.torch.charge import Charge
from workloads.torch.recorder import Recorder, Stream
from workloads.torch.refuse import Refused

NAME = "railbed"
POOL = 32  # streams from which torch takes one for each callback

Rows = tuple[int, ...]
"""Numbers of what is recorded."""

_DTYPES = {
    **{str(t).removeprefix("torch."): t for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16)},
    **{str(t).removeprefix("torch."): t for t in (torch.int32, torch.int64, torch.int8, torch.uint8)},
}
_OPS = {"SUM": "sum", "AVG": "avg", "MIN": "min", "MAX": "max", "PRODUCT": "prod"}
_OPS |= {"BAND": "band", "BOR": "bor", "BXOR": "bxor"}


class Work(dist._Work):
    """A collective that is under way: `finish` gets its values, `rows` are what is waited for."""

    def __init__(self, group: RecordedGroup, rows: Rows, finish: Callable[[], object], result: Any, host: bool = False):
        super().__init__()
        self.group, self.rows, self.finish, self.own_result, self.host = group, rows, finish, result, host
        self.future: Promise | None = None
        if group.coalesced is not None:
            group.coalesced.append(self)

    def wait(self, timeout: Any = None) -> bool:
        self.finish()
        if self.rows:
            (self.group.recorder.host_waits if self.host else self.group.recorder.wait)(self.rows)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self.own_result

    def get_future(self) -> Future[Any]:
        """Whoever asks waits in C++, which cannot be seen: DDP does, at the end of its backward pass."""
        if self.future is None:
            self.finish()
            self.future = Promise(self.group, self.rows, self.own_result)
        return self.future


class Promise(Future[Any]):
    """A result that is there when `rows` have ended.  What is computed of it goes on a stream of torch's pool."""

    def __init__(self, group: RecordedGroup, rows: Rows, result: Any) -> None:
        super().__init__()
        self.group, self.rows = group, rows
        self.set_result(result)
        if rows:
            group.waits_later(rows, [t for t in (result if isinstance(result, list) else [result]) if _is_tensor(t)])

    def wait(self) -> Any:
        self.group.recorder.wait(self.rows)
        return self.value()

    def then(self, callback: Callable[[Any], Any]) -> Promise:
        """As torch does for a GPU: a stream that waits for the result has all that the callback computes."""
        recorder = self.group.recorder
        before, recorder.current = recorder.current, self.group.stream_of_pool()
        try:
            recorder.wait(self.rows)
            result = callback(self)
            rows = tuple(sorted(recorder.close(recorder.current)))
        finally:
            recorder.current = before
        return Promise(self.group, rows, result)


class RecordedGroup(dist.ProcessGroup):
    """The ranks of one group.  `number` is its place among those of this process."""

    def __init__(self, options: Any, recorder: Recorder, charge: Charge) -> None:
        rank, size = int(options.group_rank), int(options.group_size)
        super().__init__(rank, size)
        self.own_rank, self.own_size = rank, size
        self.recorder, self.charge = recorder, charge
        self.members = list(options.global_ranks_in_group) or list(range(size))
        self.inner = dist.ProcessGroupGloo(options.store, rank, size, timeout=options.timeout)
        self.number = len(recorder.groups)
        self.entry: dict[str, Any] = {"members": self.members, "name": ""}
        recorder.groups.append(self.entry)
        self.later: list[int] = []
        self.pool_number = 0
        self.coalesced: list[Work] | None = None
        self.to_itself: dict[int, deque[torch.Tensor]] = {}  # tag -> what is sent and not yet received
        self.moving: set[Any] = set()  # messages of Gloo that nobody has waited for: the peer may not be there yet

    # What torch asks of a group

    def getSize(self) -> int:
        return self.own_size

    def getRank(self) -> int:
        return self.own_rank

    def getBackendName(self) -> str:
        return NAME

    def setGroupName(self, name: str) -> None:
        self.own_name = name

    def getGroupName(self) -> str:
        return self.own_name

    def setGroupDesc(self, name: str) -> None:
        self.entry["name"] = name

    def getGroupDesc(self) -> str:
        return str(self.entry["name"])

    # Collectives

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensor = _one(tensors)
        op = _op(opts)
        row = self._row("all_reduce", tensor, _nbytes(tensor), op)
        return self._work(row, partial(self._reduced, tensor, op), [tensor])

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        op = _op(opts)
        row = self._row("all_reduce", tensors[0], sum(map(_nbytes, tensors)), op)

        def reduce() -> None:
            for tensor in tensors:
                self._reduced(tensor, op)

        return self._work(row, reduce, tensors)

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        tensor = _one(tensors)
        row = self._row("broadcast", tensor, _nbytes(tensor), root=opts.rootRank)
        return self._work(row, self._inner("broadcast", [tensor], opts), [tensor])

    def reduce(self, tensors: Any, opts: Any) -> Work:
        tensor = _one(tensors)
        row = self._row("reduce", tensor, _nbytes(tensor), _op(opts), root=opts.rootRank)
        return self._work(row, self._inner("reduce", [tensor], opts), [tensor])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        tensor = _one(inputs)
        row = self._row("all_gather", tensor, _nbytes(tensor) * self.own_size)
        return self._work(row, self._inner("allgather", outputs, [tensor]), outputs)

    def all_gather_single(self, output: Any, tensor: Any, opts: Any = None) -> Work:
        row = self._row("all_gather", tensor, _nbytes(output), kind="parameters")
        return self._work(row, self._inner("_allgather_base", output, tensor), output)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        row = self._row("all_gather", inputs[0], sum(map(_nbytes, outputs)))

        def gather() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                self._inner("_allgather_base", output, tensor)()

        return self._work(row, gather, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single(self, output: Any, tensor: Any, opts: Any = None) -> Work:
        op = _op(opts)
        row = self._row("reduce_scatter", tensor, _nbytes(tensor), op)
        return self._work(row, lambda: self._scattered(output, tensor, op), output)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        output, tensors, op = _one(outputs), _one(inputs), _op(opts)
        row = self._row("reduce_scatter", output, sum(map(_nbytes, tensors)), op)
        flat = partial(torch.cat, [tensor.reshape(-1) for tensor in tensors])
        return self._work(row, lambda: self._scattered(output.view(-1), flat(), op), outputs)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        op = _op(opts)
        row = self._row("reduce_scatter", inputs[0], sum(map(_nbytes, inputs)), op)

        def scatter() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                self._scattered(output, tensor, op)

        return self._work(row, scatter, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        tensor = _one(inputs)
        row = self._row("gather", tensor, _nbytes(tensor) * self.own_size, root=opts.rootRank)
        return self._work(row, self._inner("gather", outputs, [tensor], opts), outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        tensor = _one(outputs)
        row = self._row("scatter", tensor, _nbytes(tensor) * self.own_size, root=opts.rootRank)
        return self._work(row, self._inner("scatter", [tensor], inputs, opts), outputs)

    def all_to_all_single(
        self, output: Any, tensor: Any, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> Work:
        exchange = self._inner("alltoall_base", output, tensor, list(output_sizes), list(input_sizes))
        sends, receives = (
            _parts(one, its, self.own_size) for one, its in ((tensor, input_sizes), (output, output_sizes))
        )
        return self._works(self._exchanged(tensor, sends, receives), exchange, output)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        rows = self._exchanged(inputs[0], list(map(_nbytes, inputs)), list(map(_nbytes, outputs)))

        def exchange() -> None:
            flat = torch.cat([tensor.reshape(-1) for tensor in inputs])
            receives, sends = ([tensor.numel() for tensor in tensors] for tensors in (outputs, inputs))
            into = flat.new_empty(sum(receives))
            self._inner("alltoall_base", into, flat, receives, sends)()
            for tensor, part in zip(outputs, into.split(receives), strict=True):
                tensor.copy_(part.view_as(tensor))

        return self._works(rows, exchange, outputs)

    def _exchanged(self, tensor: torch.Tensor, sends: Sequence[int], receives: Sequence[int]) -> Rows:
        """An all_to_all of so many bytes to and from each: as a collective if all parts of all ranks are alike.

        Otherwise each part is a message.  That is for all to know: what one rank sends may look even.
        """
        with _disable_current_modes():
            extremes = torch.tensor([max(*sends, *receives), -min(*sends, *receives)])
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.MAX
            self.inner.allreduce([extremes], options).wait()
        largest, smallest = int(extremes[0]), -int(extremes[1])
        if largest == smallest:
            row = self._row("all_to_all", tensor, sum(sends))
            return () if row is None else (row,)
        self.charge.look()
        rows = []
        peers = [(self.own_rank + k) % self.own_size for k in range(1, self.own_size)]
        for do, sizes in (("send", sends), ("recv", receives)):
            for other in peers:
                if sizes[other]:
                    tag = f"{self.entry['name']}.all_to_all"
                    rows.append(self.recorder.message(do, self.members[other], sizes[other], tag))
                    self.recorder.rows[rows[-1]]["kind"] = "all_to_all"
        return tuple(rows)

    def barrier(self, opts: Any = None) -> Work:
        row = None
        if self.own_size > 1:
            row = self.recorder.collective(self.number, "barrier", 0, "float32", None, "barrier")
        return self._work(row, self._inner("barrier"), [], host=True)

    # Several at once: torch issues each, and waits for all

    def _start_coalescing(self, device: Any) -> None:
        self.coalesced = []

    def _end_coalescing(self, device: Any) -> Work:
        works, self.coalesced = self.coalesced or [], None
        rows = tuple(row for work in works for row in work.rows)

        def finish() -> None:
            for work in works:
                work.finish()

        return Work(self, rows, finish, [t for work in works for t in work.own_result])

    # Messages

    def send(self, tensors: Any, to: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        if to == self.own_rank:
            self.to_itself.setdefault(tag, deque()).append(tensor.detach().clone())
            return Work(self, (), lambda: None, [tensor])
        row = self.recorder.message("send", self.members[to], _nbytes(tensor), f"{self.entry['name']}.{tag}")
        with _disable_current_modes():  # Gloo holds what it sends until it is waited for, which a script need not do
            copy = tensor.detach().clone()
        return self._message(row, self.inner.send([copy], to, tag), tensor)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        if source == self.own_rank:
            return Work(self, (), lambda: tensor.copy_(self.to_itself[tag].popleft()), [tensor])
        row = self.recorder.message("recv", self.members[source], _nbytes(tensor), f"{self.entry['name']}.{tag}")
        return self._message(row, self.inner.recv([tensor], source, tag), tensor)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        raise Refused("a receive from anybody: who sends first depends on the fabric", "name the sender: recv(src=..)")

    def _message(self, row: int, inner: Any, tensor: Any) -> Work:
        self.moving.add(inner)

        def finish() -> None:
            if inner in self.moving:
                inner.wait()
                self.moving.remove(inner)

        return Work(self, (row,), finish, [tensor])

    # What is behind them

    def _row(
        self, name: str, tensor: torch.Tensor, nbytes: int, op: str | None = None, root: int = 0, kind: str = ""
    ) -> int | None:
        """Records it; a group of one rank, and nothing at all, is no collective."""
        if self.own_size < 2 or not nbytes:
            return None
        self.charge.look()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            dtype = "uint8"
        if name in ("all_reduce", "reduce_scatter") and self.recorder.phase == "backward":
            kind = "gradients"
        row = self.recorder.collective(self.number, name, nbytes, dtype, op, kind or name)
        if root:
            self.recorder.rows[row]["root"] = root
        return row

    def _work(self, row: int | None, values: Callable[[], object], result: Any, host: bool = False) -> Work:
        return self._works(() if row is None else (row,), values, result, host)

    def _works(self, rows: Rows, values: Callable[[], object], result: Any, host: bool = False) -> Work:
        """The values are there at once: what is emulated is when."""
        with _disable_current_modes():
            values()
        return Work(self, rows, lambda: None, result, host)

    def _inner(self, name: str, *args: Any) -> Callable[[], object]:
        return lambda: getattr(self.inner, name)(*args).wait()

    def _reduced(self, tensor: torch.Tensor, op: str) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = _REDUCTIONS[op]
        wide = _wide(tensor)
        self.inner.allreduce([wide], options).wait()
        if op == "avg":
            wide.div_(self.own_size)
        if wide is not tensor:
            tensor.copy_(wide)

    def _scattered(self, output: torch.Tensor, tensor: torch.Tensor, op: str) -> None:
        options = dist.ReduceScatterOptions()
        options.reduceOp = _REDUCTIONS[op]
        into, wide = _wide(output), _wide(tensor)
        self.inner._reduce_scatter_base(into, wide, options).wait()
        if op == "avg":
            into.div_(self.own_size)
        if into is not output:
            output.copy_(into)

    def stream_of_pool(self) -> Stream:
        """The next one; after the last the first again."""
        self.pool_number += 1
        return self.recorder.stream(f"{NAME} {self.number} pool {self.pool_number % POOL}")

    def waits_later(self, rows: Rows, tensors: Any) -> None:
        """The main stream waits for it where its result is read, and at the end of the backward pass at the latest."""
        if torch._C._current_graph_task_id() == -1:
            self.recorder.wait(rows)
            return
        for tensor in tensors:
            self.charge.touched[tensor.untyped_storage().data_ptr()] = rows
        first, self.later = not self.later, [*self.later, *rows]
        if first:
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: queue(self._join))  # behind what DDP has queued, which reads the results

    def _join(self) -> None:
        rows, self.later = self.later, []
        self.charge.touched = {
            at: written for at, written in self.charge.touched.items() if not set(written) <= set(rows)
        }
        self.recorder.wait(rows)


_REDUCTIONS = {
    **{"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX},
    **{"prod": dist.ReduceOp.PRODUCT, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR},
}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """What Gloo can add up."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _one(tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise Refused(f"a collective of {len(tensors)} tensors of one rank", "one tensor for each rank")
    return tensors[0]


def _op(opts: Any) -> str:
    reduce_op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    for name, own in _OPS.items():
        if reduce_op == getattr(dist.ReduceOp, name):
            return own
    raise Refused("a reduction that no collective here has", f"one of {', '.join(_OPS)}")


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _parts(tensor: torch.Tensor, sizes: Sequence[int], count: int) -> list[int]:
    """Bytes of each rank's part: `sizes` are rows of the tensor, and if there are none all have as many."""
    if not sizes:
        return [_nbytes(tensor) // count] * count
    row = _nbytes(tensor) // max(tensor.shape[0], 1)
    return [size * row for size in sizes]


def install(recorder: Recorder, charge: Charge) -> None:
    """From now on every group that is made is one of these."""
    dist.Backend.register_backend(
        NAME, lambda options, _: RecordedGroup(options, recorder, charge), extended_api=True, devices=["cpu"]
    )
    new_group = distributed_c10d._new_process_group_helper

    def recorded_group(*args: Any, **kwargs: Any) -> Any:
        args = (*args[:3], NAME, *args[4:])
        return new_group(*args, **{key: value for key, value in kwargs.items() if key not in _OF_THE_BACKEND})

    distributed_c10d._new_process_group_helper = recorded_group
    dist.monitored_barrier = lambda group=None, timeout=None, wait_all_ranks=False: dist.barrier(group)


_OF_THE_BACKEND = ("backend_options", "device_id")
