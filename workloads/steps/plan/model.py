"""A transformer as numbers: its shape, its parameters by part, and the shapes of models that people know.

Parameters are counted as the models' own code makes them: the presets come out at the published counts to the digit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workloads.base.vocabulary import DTYPES


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder.  `gated`: SwiGLU, three matrices in an MLP instead of two.  `bias`: of every matrix and norm, as GPT.

    `positions`: learned embeddings of the places in the sequence.  `tied`: the head uses the embedding's table.
    `experts`: MLPs in a layer, of which a token takes `top_k`; 0: one MLP that all tokens take.
    """

    layers: int
    hidden: int
    heads: int
    seq: int
    kv_heads: int
    ffn: int
    vocab: int = 0
    experts: int = 0
    top_k: int = 2
    gated: bool = False
    bias: bool = False
    tied: bool = False
    positions: int = 0
    head_dim: int = 0  # 0: hidden / heads
    dtype: str = "bfloat16"

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype]

    @property
    def queries(self) -> int:
        """Elements of all heads' queries of a token."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def keys(self) -> int:
        """Elements of a token's keys, and as many of its values."""
        return self.kv_heads * (self.head_dim or self.hidden // self.heads)

    @property
    def columns(self) -> int:
        """Matrices that an MLP begins with."""
        return 2 if self.gated else 1

    @property
    def attention(self) -> Part:
        """Norm, queries, keys and values, projection."""
        inner = self.queries + 2 * self.keys
        return Part(
            split=self.hidden * inner + self.queries * self.hidden + self.bias * inner,
            whole=(1 + self.bias) * self.hidden + self.bias * self.hidden,
        )

    @property
    def mlp(self) -> Part:
        """One MLP, without its norm."""
        return Part(
            split=(self.columns + 1) * self.hidden * self.ffn + self.bias * self.columns * self.ffn,
            whole=self.bias * self.hidden,
        )

    @property
    def feed_forward(self) -> Part:
        """What all ranks of a layer's second half have: norm, and the MLP, or the router of its experts."""
        norm = (1 + self.bias) * self.hidden
        if self.experts:
            return Part(split=0, whole=norm + self.hidden * self.experts)
        return replace(self.mlp, whole=self.mlp.whole + norm)

    @property
    def embedding(self) -> Part:
        return Part(split=self.vocab * self.hidden, whole=self.positions * self.hidden)

    @property
    def head(self) -> Part:
        """The last norm, and the table of the output, also where it is a copy of the embedding's (see `tied`)."""
        if not self.vocab:
            return Part(0, 0)
        return Part(split=self.vocab * self.hidden, whole=(1 + self.bias) * self.hidden)

    @property
    def layer_parameters(self) -> int:
        return self.attention.all + self.feed_forward.all + self.experts * self.mlp.all

    @property
    def parameters(self) -> int:
        """Of the whole model; a tied table counts once."""
        tables = self.embedding.all + self.head.all - self.tied * self.vocab * self.hidden
        return self.layers * self.layer_parameters + tables

    def flops(self, tokens: int) -> float:
        """What a model has to compute for a step over so many tokens: forward, and backward with twice as much.

        Narayanan et al. (SC'21), equation 3 without recomputation: 72 B s l h^2 (1 + s/6h + V/12lh), here with the
        model's own matrices.  Attention counts in full, also where it is causal, as in their paper and in PaLM's;
        Megatron-LM's log has since taken half of it.
        """
        mlps = self.top_k if self.experts else 1
        matrices = self.hidden * (2 * self.queries + 2 * self.keys) + mlps * (self.columns + 1) * self.hidden * self.ffn
        matrices += self.experts * self.hidden
        layer = 2 * matrices + 4 * self.seq * self.queries
        return 3.0 * tokens * (self.layers * layer + 2 * self.vocab * self.hidden)


@dataclass(frozen=True)
class Part:
    """Parameters that tensor parallelism splits, and those that each of its ranks has."""

    split: int
    whole: int

    @property
    def all(self) -> int:
        return self.split + self.whole

    def on(self, tensor: int) -> int:
        """How many one of so many ranks has; tables and matrices are padded to whole elements."""
        return -(-self.split // tensor) + self.whole


def gpt(layers: int, hidden: int, heads: int, seq: int = 2048, vocab: int = 50257) -> Model:
    """As GPT-2 and GPT-3 are: an MLP of four times the width, biases, learned positions, one table."""
    return Model(
        layers=layers, hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, seq=seq, vocab=vocab, positions=seq,
        bias=True, tied=True,
    )  # fmt: skip


def llama(
    layers: int, hidden: int, heads: int, ffn: int, seq: int, *, kv_heads: int = 0, vocab: int = 32000, experts: int = 0
) -> Model:
    """As LLaMA is: SwiGLU, no biases, a head of its own."""
    return Model(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads or heads, ffn=ffn, seq=seq, vocab=vocab,
        experts=experts, gated=True,
    )  # fmt: skip


PRESETS: dict[str, Model] = {
    "gpt2": gpt(12, 768, 12, seq=1024),
    "gpt2-xl": gpt(48, 1600, 25, seq=1024),
    "gpt3-1.3b": gpt(24, 2048, 16),
    "gpt3-13b": gpt(40, 5120, 40),
    "gpt3-175b": gpt(96, 12288, 96),
    "llama-7b": llama(32, 4096, 32, 11008, 2048),
    "llama-13b": llama(40, 5120, 40, 13824, 2048),
    "llama2-70b": llama(80, 8192, 64, 28672, 4096, kv_heads=8),
    "llama3-8b": llama(32, 4096, 32, 14336, 8192, kv_heads=8, vocab=128256),
    "llama3-70b": llama(80, 8192, 64, 28672, 8192, kv_heads=8, vocab=128256),
    "llama3-405b": llama(126, 16384, 128, 53248, 8192, kv_heads=8, vocab=128256),
    "mixtral-8x7b": llama(32, 4096, 32, 14336, 4096, kv_heads=8, experts=8),
    "mixtral-8x22b": llama(56, 6144, 48, 16384, 4096, kv_heads=8, experts=8),
}
"""Shapes: GPT-2 (Radford et al. 2019, OpenAI's code), GPT-3 (Brown et al. 2020, table 2.1; heads of 1.3b as in
Megatron's, 16 of 128), LLaMA (Touvron et al. 2023, table 2), Llama 2 and 3 (Llama 3 herd of models, table 3; 405b with
8 heads of keys), Mixtral (Jiang et al. 2024, table 1; 8x22b by its config.json).  Sequences are those of pre-training;
Mixtral's, which is not published, is 4096."""
