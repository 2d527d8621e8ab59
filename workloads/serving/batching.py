"""Which requests a pool works on in each of its iterations: continuous batching.

A pool does one iteration after the other.  Before each it takes in requests that have come, first come first served, as
long as there is room.  Prompts come first: if some were taken in, the iteration reads them and gives each its first
token, and those that generate wait (Orca's iterations, Yu et al., OSDI'22; vLLM's order of old).  Else every request
gets its next token.

A graph of tasks is fixed before it runs, so this is decided by what iterations are expected to take.  Requests never
start before they are there; how often the real times would have decided otherwise is counted afterwards
(results/figures/serving.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workloads.serving.requests import Request


@dataclass(frozen=True)
class Limits:
    """`sequences`: that a pool works on at a time; `prompt_tokens`: that it reads in one iteration, or one prompt."""

    sequences: int
    prompt_tokens: int


@dataclass(frozen=True)
class Iteration:
    """`new[k]` tokens of the k-th sequence, each of which looks at `contexts[k]` tokens; `gives`: request of each.

    `joined`: requests that were taken in for it; `passed`: those that were there, and for which there was no room.
    """

    gives: tuple[int, ...]
    new: tuple[int, ...]
    contexts: tuple[int, ...]
    joined: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(self.new)

    @property
    def reads(self) -> bool:
        """Whether it is one of prompts: they have just come, and no token looks at others before them."""
        return bool(self.joined) and self.new == self.contexts


@dataclass(frozen=True)
class PlannedIteration:
    """An iteration, and when it is expected to begin and to end."""

    iteration: Iteration
    start_ns: float
    end_ns: float


@dataclass
class Batch:
    """What a pool, or one of its micro-batches, has to do: requests that wait, and those that get tokens."""

    requests: Sequence[Request]
    limits: Limits
    prompts: bool  # it reads prompts
    answers: bool  # it generates the tokens after the first
    waiting: deque[int] = field(default_factory=deque)
    left: dict[int, int] = field(default_factory=dict)  # request -> tokens still to generate

    def next(self) -> Iteration | None:
        """The next iteration, of whatever is there."""
        joined = self._join()
        passed = tuple(self.waiting)
        if self.prompts and joined:
            new = tuple(self.requests[r].prompt for r in joined)
            return Iteration(joined, new, new, joined, passed)
        if not self.left:
            return None
        gives = tuple(self.left)
        contexts = tuple(self._context(r) for r in gives)
        return Iteration(gives, (1,) * len(gives), contexts, joined, passed)

    def _context(self, r: int) -> int:
        """Tokens that its next one looks at: the prompt, those generated, and itself."""
        return self.requests[r].prompt + self.requests[r].output - self.left[r]

    def _join(self) -> tuple[int, ...]:
        joined: list[int] = []
        tokens = 0
        while self.waiting and len(self.left) < self.limits.sequences:
            prompt = self.requests[self.waiting[0]].prompt
            if self.prompts and joined and tokens + prompt > self.limits.prompt_tokens:
                break
            tokens += prompt
            joined.append(self.waiting.popleft())
            self.left[joined[-1]] = self.requests[joined[-1]].output - (not self.prompts)
        return tuple(joined)

    def done(self, iteration: Iteration) -> None:
        for r in iteration.gives:
            self.left[r] -= 1
            if not self.left[r] or not self.answers:
                del self.left[r]


def iterations(
    requests: Sequence[Request],
    ready: Mapping[int, float],
    limits: Limits,
    duration_ns: Callable[[Iteration], float],
    *,
    prompts: bool,
    answers: bool,
) -> list[PlannedIteration]:
    """Of one pool.  `ready`: when each request that comes to it is there; `takes`: ns of an iteration.

    `prompts`: it reads prompts, so that it gives the first token; `answers`: it gives the others.
    """
    pool = Batch(requests, limits, prompts, answers)
    coming = deque(sorted(ready, key=lambda r: (ready[r], r)))
    planned: list[PlannedIteration] = []
    now = 0.0
    while coming or pool.waiting or pool.left:
        while coming and ready[coming[0]] <= now:
            pool.waiting.append(coming.popleft())
        iteration = pool.next()
        if iteration is None:
            now = ready[coming[0]]
            continue
        end = now + duration_ns(iteration)
        planned.append(PlannedIteration(iteration, now, end))
        pool.done(iteration)
        now = end
    return planned
