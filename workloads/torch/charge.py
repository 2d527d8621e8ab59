"""What a script computes: FLOPs and bytes of every operation on tensors, as it is issued.

A matrix multiplication, convolution or attention counts its FLOPs (flops.py), and every operation reads its inputs and
writes its outputs; a look-up reads what it finds, a scatter changes what it touches.  Views and empty tensors cost
nothing.  How long that takes, a GPU says (steps.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from workloads.torch.flops import flops as flops_of
from workloads.torch.flops import known
from workloads.torch.memory import MemoryTracker
from workloads.torch.recorder import Recorder

_PLAIN = torch._C._disabled_torch_dispatch_impl
_FREE = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh", "alias"),
    *("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "is_same_size", "resize_", "set_", "record_stream"),
)
_SCATTERS: dict[str, str | bool] = {  # in place: whether they read what they change, or the argument that says it
    **{"index_put_": "accumulate", "_index_put_impl_": "accumulate", "put_": "accumulate", "scatter_": "reduce"},
    **dict.fromkeys(("scatter_add_", "scatter_reduce_", "index_add_", "index_reduce_"), True),
    **dict.fromkeys(("index_copy_", "index_fill_"), False),
}
_LOOK_UPS = ("embedding", "index", "index_select", "gather", "take")
_OVERWRITE = ("copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "normal_", "uniform_", "bernoulli_")
_OF_GROUPS = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_HOST_WAITS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero")


class Charge(TorchDispatchMode):
    """Charges a recorder for all that happens while it is active."""

    def __init__(self, recorder: Recorder, memory: MemoryTracker) -> None:
        super().__init__()
        self.recorder, self.memory = recorder, memory
        self.in_optimizer = False
        self.touched: dict[int, tuple[int, ...]] = {}  # storage -> what writes it, whose wait torch does not tell

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if FakeTensor in types:
            return func(*args, **(kwargs or {}))  # torch finds out about shapes
        if any(t.__torch_dispatch__ is not _PLAIN for t in types):
            return NotImplemented  # a sharded tensor: what it does with its own part comes here again
        if _has_parts(func):  # without gradients operations come whole
            with self:
                return func.decompose(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        self.memory.track(t for t in _tensors(out) if not isinstance(t, FakeTensor))
        if func.namespace in _OF_GROUPS:
            return out
        self.look()
        if name in _HOST_WAITS and not self.in_optimizer:  # an optimizer counts its steps on the host
            self.recorder.host_waits(self.recorder.close(self.recorder.current))
        if _is_free(func):
            return out
        read, made = list(_tensors((args, kwargs))), list(_tensors(out))
        if any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in (*read, *made)):
            return out
        if self.touched:
            self._join(read)
        flops = flops_of(func, args, kwargs or {}, out)
        nbytes = _moved(func, args, kwargs or {}, out)
        if flops or nbytes:
            dtype = str((made or read)[0].dtype).removeprefix("torch.")
            self.recorder.charge(flops, nbytes, dtype)
        return out

    def look(self) -> None:
        """Which phase is it?  backward while autograd works; then the optimizer's, until the model is called again."""
        if torch._C._current_graph_task_id() != -1:
            self.recorder.phase = "backward"
        elif self.recorder.phase == "backward":
            self.recorder.phase = "optimizer"

    def _join(self, read: list[torch.Tensor]) -> None:
        for tensor in read:
            self.recorder.wait(self.touched.pop(tensor.untyped_storage().data_ptr(), ()))


@cache
def _has_parts(func: Any) -> bool:
    if known(func) or func.namespace != "aten":
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@cache
def _is_free(func: Any) -> bool:
    if func._overloadpacket.__name__ in _FREE:
        return True
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _moved(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Bytes that are read and written: inputs once, what is changed in place twice, results once."""
    name = func._overloadpacket.__name__
    if name == "all_gather_copy_in":  # of FSDP: its own part goes to its place in the whole, which it returns
        return 2 * sum(map(_bytes, _tensors(args[0])))
    if name.endswith("_like") or name.startswith("new_"):  # takes a shape and a type of what it is given
        return sum(map(_bytes, _tensors(out)))
    total = 0
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        nbytes = sum(map(_bytes, _tensors(value)))
        if place == 0 and name in _LOOK_UPS:
            nbytes = min(nbytes, sum(map(_bytes, _tensors(out))))
        changes = argument.alias_info is not None and argument.alias_info.is_write
        reads = not (changes and (argument.is_out or name in _OVERWRITE))
        if place == 0 and name in _SCATTERS:
            nbytes = min(nbytes, _touched(name, func, args, kwargs))
            reads = _adds(name, func, args, kwargs)
        total += nbytes * (int(reads) + int(changes))
    returns = func._schema.returns
    for argument, value in zip(returns, out if len(returns) > 1 else (out,), strict=False):
        if argument.alias_info is None:
            total += sum(map(_bytes, _tensors(value)))
    return total


def _touched(name: str, func: Any, args: Any, kwargs: Any) -> int:
    """Bytes of a table that a scatter changes.  Of a mask nobody knows: all of it."""
    table, several = args[0], name in ("index_put_", "_index_put_impl_")
    index = _argument(func, args, kwargs, "indices" if several else "index")
    if several:
        if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in index):
            return _bytes(table)
        shape = torch.broadcast_shapes(*(i.shape for i in index if i is not None))
        rest = prod(n for k, n in enumerate(table.shape) if k >= len(index) or index[k] is None)
        return int(prod(shape) * rest * table.element_size())
    elements = int(index.numel())
    if name.startswith("index_"):
        elements *= int(table.numel()) // max(int(table.shape[_argument(func, args, kwargs, "dim")]), 1)
    return elements * int(table.element_size())


def _adds(name: str, func: Any, args: Any, kwargs: Any) -> bool:
    """Whether it reads what it changes."""
    how = _SCATTERS[name]
    return bool(_argument(func, args, kwargs, how)) if isinstance(how, str) else how


def _argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[place] if place < len(args) else kwargs.get(name, argument.default_value)
    return None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _bytes(tensor: torch.Tensor) -> int:
    """Of its elements; those of an expanded dimension are the same one."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride or not size else 1
    return int(elements * tensor.element_size())
