"""The tasks of one layer on one rank, forward and backward, with what its tensor, context and expert ranks exchange.

Tensor parallelism (Megatron, Shoeybi et al. 2019): both halves of a layer end with an all-reduce forward, and begin
with one backward, which runs beside the gradients of the weights.  With sequence parallelism (Korthikanti et al. 2022)
an all-gather before and a reduce-scatter behind each half take their place; what was gathered is gathered again for the
gradients of the weights, beside those of the inputs.

Experts (GShard): a rank's tokens are dispatched to the ranks of their experts and combined again: an all-to-all each
way, one message to each rank where the parts differ.  What the experts of tensor ranks get is gathered around them by
Megatron's dispatcher, and they know nothing of it: it stays gathered, and its gradients wait for those of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workloads.steps import ring_attention
from workloads.steps.plan.training import Training
from workloads.steps.program import Program
from workloads.steps.roofline import Cost, Times, experts

FORWARD, BACKWARD, WEIGHTS, RECOMPUTED = "forward", "backward", "weight_gradients", "recompute"
TENSOR, DISPATCH, COMBINE = "tensor", "expert_dispatch", "expert_combine"


@dataclass
class Layers:
    """What all layers of a rank share.  `rings`: name of a group -> the rank's own, for groups of several."""

    training: Training
    times: Times
    program: Program
    groups: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        t, m = self.training, self.training.model
        self._whole = t.tokens * m.hidden * m.width
        self._block = 2 * t.tokens * m.keys // t.parallel.tensor * m.width
        self.split = False  # the gradients of weights have a pass of their own
        self._loads: list[int] = []
        self._experts = Cost()
        if m.experts:
            self._route()

    # Forward

    def forward(self, name: str, kind: str = FORWARD) -> Iterator[None]:
        """`name`: of the micro-batch, chunk and layer.  Comes back after each half."""
        times, program = self.times, self.program
        self._gather(f"{name}.attention")
        program.compute(kind, f"{name}.qkv", times.qkv.forward)
        if "context" in self.groups:
            ring_attention.forward(program, self.groups["context"], name, kind, self._block, times.core.forward)
        else:
            program.compute(kind, f"{name}.core", times.core.forward)
        program.compute(kind, f"{name}.projection", times.projection.forward)
        self._sum(f"{name}.attention")
        if not self.training.model.experts:
            yield
            self._gather(f"{name}.mlp")
            program.compute(kind, f"{name}.mlp", times.column.forward + times.row.forward)
            self._sum(f"{name}.mlp")
            yield
            return
        program.compute(kind, f"{name}.router", times.router.forward)
        self._dispatch(f"{name}.dispatch", DISPATCH)
        yield
        self._gather(f"{name}.mlp", self._received)
        program.compute(kind, f"{name}.experts", self._experts.forward)
        self._sum(f"{name}.mlp", self._received)
        self._combine(f"{name}.combine", COMBINE)
        yield

    # Backward

    def backward_mlp(self, name: str) -> Iterator[None]:
        """With the gradients of weights, unless the schedule computes them by themselves.  Comes back while tokens are
        under way; without experts before and behind it."""
        times, program = self.times, self.program
        if not self.training.model.experts:
            yield
            self._half(f"{name}.mlp", times.row, Cost(), times.column)
            yield
            return
        self._dispatch(f"{name}.combine", COMBINE)
        yield
        self._gather(f"{name}.mlp.b", self._received)
        program.compute(BACKWARD, f"{name}.mlp.column", self._experts.inputs)
        if not self.split:
            program.compute(BACKWARD, f"{name}.mlp.column_weights", self._experts.weights)
        self._sum(f"{name}.mlp.b", self._received)
        self._combine(f"{name}.dispatch", DISPATCH)
        yield
        program.compute(BACKWARD, f"{name}.router", times.router.inputs)
        if not self.split:
            program.compute(BACKWARD, f"{name}.router_weights", times.router.weights)

    def backward_attention(self, name: str) -> None:
        self._half(f"{name}.attention", self.times.projection, self.times.core, self.times.qkv)

    def weights_mlp(self, name: str) -> None:
        if self.training.model.experts:
            self.program.compute(WEIGHTS, f"{name}.mlp.column_weights", self._experts.weights)
            self.program.compute(WEIGHTS, f"{name}.router_weights", self.times.router.weights)
        else:
            self._weights(f"{name}.mlp", self.times.row, self.times.column)

    def weights_attention(self, name: str) -> None:
        self._weights(f"{name}.attention", self.times.projection, self.times.qkv)

    # The model's ends

    def embed(self, name: str) -> None:
        """Every rank of tensor has a part of the table: the sum is a token's vector."""
        self.program.compute(FORWARD, f"{name}.embedding", self.times.embedding.forward)
        self._sum(f"{name}.embedding")

    def embed_backward(self, name: str) -> None:
        self._gather(f"{name}.embedding.b")
        self.program.compute(BACKWARD, f"{name}.embedding", self.times.embedding.inputs)

    def predict(self, name: str) -> None:
        self._gather(f"{name}.head")
        self.program.compute(FORWARD, f"{name}.head", self.times.head.forward)

    def predict_backward(self, name: str) -> None:
        self._column(f"{name}.head", self.times.head)

    def predict_weights(self, name: str) -> None:
        self._weights(f"{name}.head", Cost(), self.times.head)

    def _half(self, name: str, row: Cost, core: Cost, column: Cost) -> None:
        """Half a layer backwards: what ends it, the core, what begins it."""
        program = self.program
        self._gather(f"{name}.b")
        program.compute(BACKWARD, f"{name}.row", row.inputs if self.split else row.backward)
        if "context" in self.groups and core.inputs:
            ring_attention.backward(program, self.groups["context"], name, BACKWARD, self._block, core.inputs)
        else:
            program.compute(BACKWARD, f"{name}.core", core.inputs)
        self._column(name, column)

    def _column(self, name: str, column: Cost) -> None:
        """Its inputs' gradients are summed beside the computation of its weights'."""
        program, sequence = self.program, self.training.parallel.sequence
        again = self._ask_gather(f"{name}.again") if sequence and not self.split else None
        program.compute(BACKWARD, f"{name}.column", column.inputs)
        summed = self._ask_sum(f"{name}.b")
        if not self.split:
            if again:
                program.wait(again)
            program.compute(BACKWARD, f"{name}.column_weights", column.weights)
        if summed:
            program.wait(summed)

    def _weights(self, name: str, row: Cost, column: Cost) -> None:
        again = self._ask_gather(f"{name}.again") if self.training.parallel.sequence else None
        self.program.compute(WEIGHTS, f"{name}.row_weights", row.weights)
        if again:
            self.program.wait(again)
        self.program.compute(WEIGHTS, f"{name}.column_weights", column.weights)

    # Tensor parallelism

    def gather(self, name: str) -> None:
        """All that the ranks of tensor have a part of, from another stage (Narayanan et al., SC'21, section 4.1)."""
        self.program.wait(self._ask_gather(name))

    def _gather(self, name: str, nbytes: int | None = None) -> None:
        """Before a half, with sequence parallelism."""
        if self.training.parallel.sequence:
            self.program.wait(self._ask_gather(name, nbytes))

    def _sum(self, name: str, nbytes: int | None = None) -> None:
        if task := self._ask_sum(name, nbytes):
            self.program.wait(task)

    def _ask_gather(self, name: str, nbytes: int | None = None) -> str:
        size, dtype = self._whole if nbytes is None else nbytes, self.training.model.dtype
        return self.program.collective(f"{name}.all_gather", TENSOR, "all_gather", "tensor", size, dtype)

    def _ask_sum(self, name: str, nbytes: int | None = None) -> str | None:
        if "tensor" not in self.groups:
            return None
        size, dtype = self._whole if nbytes is None else nbytes, self.training.model.dtype
        collective = "reduce_scatter" if self.training.parallel.sequence else "all_reduce"
        return self.program.collective(f"{name}.{collective}", TENSOR, collective, "tensor", size, dtype)

    # Experts

    def _route(self) -> None:
        """Tokens to each rank of the expert group, what this one gets, and what its experts take for it."""
        t, m, p = self.training, self.training.model, self.training.parallel
        each = m.experts // p.expert
        loads = t.gating.loads(t.routed, m.top_k, m.experts)
        self._loads = [sum(loads[k * each : (k + 1) * each]) for k in range(p.expert)]
        group = self.groups.get("expert")
        self._at = at = group.index(self.program.rank) if group else 0
        gathered = p.expert * (p.tensor if p.sequence else 1)
        self._experts = experts(t, [gathered * n for n in loads[at * each : (at + 1) * each]])
        self._received = gathered * self._loads[at] * m.hidden * m.width

    def _token_bytes(self, tokens: int) -> int:
        return tokens * self.training.model.hidden * self.training.model.width

    def _dispatch(self, name: str, kind: str) -> None:
        """To each rank what its experts take."""
        self._exchange(name, kind, self._loads, [self._loads[self._at]] * len(self._loads))

    def _combine(self, name: str, kind: str) -> None:
        """Back to each rank what it has sent."""
        self._exchange(name, kind, [self._loads[self._at]] * len(self._loads), self._loads)

    def _exchange(self, name: str, kind: str, out: Sequence[int], into: Sequence[int]) -> None:
        """Messages of so many tokens to and from each rank of the group."""
        ranks = self.groups.get("expert")
        if ranks is None:
            return
        program, dtype = self.program, self.training.model.dtype
        if len(set(self._loads)) == 1:
            size = self._token_bytes(sum(self._loads))
            program.wait(program.collective(name, kind, "all_to_all", "expert", size, dtype))
            return
        after = program.done()
        for k in range(1, len(ranks)):
            to = (self._at + k) % len(ranks)
            if out[to]:
                nbytes = self._token_bytes(out[to])
                program.send(f"{name}.{k}", kind, ranks[to], nbytes, "expert", f"expert_send{k}", after)
        for k in range(1, len(ranks)):
            of = (self._at - k) % len(ranks)
            if into[of]:
                nbytes = self._token_bytes(into[of])
                stream = f"expert_receive{k}"
                program.wait(program.receive(f"{name}.{k}", kind, ranks[of], nbytes, "expert", stream))
