"""FLOPs of an operation: torch's own formulas, and those of fused operations that a CPU has and torch's table lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry


def known(func: Any) -> bool:
    """Whether its FLOPs are known; what has none is taken apart, if it can be."""
    return func._overloadpacket in flop_registry or func._overloadpacket in _FUSED


def flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """0 of what multiplies no matrices."""
    packet = func._overloadpacket
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=out))
    return int(_FUSED[packet](*args, **kwargs)) if packet in _FUSED else 0


def _times_vector(matrix: Any, vector: Any) -> int:
    return 2 * int(matrix.numel())


def _plus_times_vector(bias: Any, matrix: Any, vector: Any, **_: Any) -> int:
    return 2 * int(matrix.numel())


def _dot(one: Any, other: Any) -> int:
    return 2 * int(one.numel())


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_registry[_aten._scaled_dot_product_flash_attention](query, key, value, out_val=query))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_registry[_aten._scaled_dot_product_flash_attention_backward](grad, query, key, value))


def _recurrent(its: Any, weight: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """One layer, all of its time steps: what comes in and what it remembers, by a matrix each."""
    return 2 * _rows(its) * (int(weight.numel()) + int(recurrent.numel()))


def _recurrent_backward(its: Any, weight: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """Gradients of both matrices, and of what they were multiplied with."""
    return 2 * _recurrent(its, weight, recurrent)


def _heads(query: Any, key: Any, value: Any, width: int, heads: int, qkv: Any, bias: Any, out: Any, *_: Any) -> int:
    """Of a whole multi-head attention: projections, scores, values."""
    weights = 2 * _rows(query) * (int(qkv.numel()) + int(out.numel()))
    return weights + 4 * _rows(query) * int(key.shape[-2]) * width


def _encoder_layer(src: Any, width: int, heads: int, qkv: Any, bias: Any, out: Any, *more: Any, **_: Any) -> int:
    up, down = more[8], more[10]
    mlp = 2 * _rows(src) * (int(up.numel()) + int(down.numel()))
    return _heads(src, src, src, width, heads, qkv, bias, out) + mlp


def _rows(tensor: Any) -> int:
    return int(tensor.numel()) // max(int(tensor.shape[-1]), 1)


_aten = torch.ops.aten
_FUSED: dict[Any, Callable[..., int]] = {
    _aten.mv: _times_vector,
    _aten.addmv: _plus_times_vector,
    _aten.addmv_: _plus_times_vector,
    _aten.dot: _dot,
    _aten.vdot: _dot,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _aten.mkldnn_rnn_layer: _recurrent,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    _aten._native_multi_head_attention: _heads,
    _aten._transformer_encoder_layer_fwd: _encoder_layer,
}
