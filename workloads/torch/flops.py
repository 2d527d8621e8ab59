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


def _product(matrix: Any, vector: Any) -> int:
    return 2 * int(matrix.numel())


def _sum_with_product(bias: Any, matrix: Any, vector: Any, **_: Any) -> int:
    return 2 * int(matrix.numel())


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_registry[_aten._scaled_dot_product_flash_attention](query, key, value, out_val=query))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_registry[_aten._scaled_dot_product_flash_attention_backward](grad, query, key, value))


def _recurrent(inputs: Any, weight: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """One layer, all of its time steps: what comes in and what it remembers, by a matrix each."""
    return 2 * _rows(inputs) * (int(weight.numel()) + int(recurrent.numel()))


def _recurrent_backward(inputs: Any, weight: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """Gradients of both matrices, and of what they were multiplied with."""
    return 2 * _recurrent(inputs, weight, recurrent)


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
    **dict.fromkeys((_aten.mv, _aten.dot, _aten.vdot), _product),
    **dict.fromkeys((_aten.addmv, _aten.addmv_), _sum_with_product),
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _aten.mkldnn_rnn_layer: _recurrent,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    _aten._native_multi_head_attention: _heads,
    _aten._transformer_encoder_layer_fwd: _encoder_layer,
}
