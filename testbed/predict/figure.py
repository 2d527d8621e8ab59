"""What is predicted: a time for each size of a step, and how it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.cluster.bars import Bar
    from testbed.experiment import Experiment

MESSAGES, FLOWS, FORMULA, LONGEST_PATH, ONE_PIPELINE = "messages", "flows", "formula", "longest path", "one pipeline"
HOW = {
    MESSAGES: "every message of the schedule followed",
    FLOWS: "all ranks' messages at once, round by round; what shares a cable has equal shares",
    FORMULA: "the closed form, of what NICs and switches do, or of a schedule with too many messages to follow",
    LONGEST_PATH: "the longest path through the tasks, each as long as alone",
    ONE_PIPELINE: "the longest path through one pipeline's tasks; groups of all pipelines that share a cable share it",
}
"""How a time can be found."""


_OF_TRAINING = ("mfu", "tokens_per_s", "memory_bytes")

Tell = Callable[[str], None]


def step_of(experiment: Experiment, number: int) -> str:
    """A step of the workload, in words for whoever waits."""
    return f"step {number + 1} of {len(experiment.workload)}, {experiment.workload[number].label}"


@dataclass(frozen=True)
class Figure:
    """One line of the prediction.  `group`: which of several that work side by side.

    `no_model`: what `auto` may choose in a run, and could not be compared with.  `paused`: cables whose senders PFC
    would pause, by the nodes at their ends; None where messages are not followed, so that nobody has looked.
    `holds_up`: whether what goes elsewhere waits with what is paused (None: nobody has looked).
    `bar`: how far off a cluster with a profile may be.  `chosen`: what `auto` takes, and why.  `times`: how often a run
    does it, warmup included.
    """

    step: int
    name: str  # collective, or what the step's tasks are called
    algorithm: str
    ranks: int
    size_bytes: int | None
    time_ns: float
    how: str
    times: int
    busbw_factor: float | None = None
    group: int | None = None
    no_model: tuple[str, ...] = ()
    paused: tuple[tuple[str, str], ...] | None = ()
    holds_up: bool | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    bar: Bar | None = None
    about: Mapping[str, Any] = field(default_factory=dict)  # of a training step (testbed.plan.steps.training.about)

    @property
    def mfu(self) -> float | None:
        """Of a training step: the share of all GPUs' peak that the model's FLOPs take."""
        return self.about["ideal_ns"] / self.time_ns if "ideal_ns" in self.about and self.time_ns else None

    @property
    def tokens_per_s(self) -> float | None:
        """Likewise."""
        return self.about["tokens"] * 1e9 / self.time_ns if "tokens" in self.about and self.time_ns else None

    @property
    def memory_bytes(self) -> int | None:
        """Of the rank that holds most."""
        peak: int | None = self.about.get("memory", {}).get("peak")
        return peak

    @property
    def algbw_bps(self) -> float | None:
        """Bytes per second."""
        return self.size_bytes / self.time_ns * 1e9 if self.size_bytes and self.time_ns else None

    @property
    def busbw_bps(self) -> float | None:
        """Likewise."""
        if self.algbw_bps is None or self.busbw_factor is None:
            return None
        return self.algbw_bps * self.busbw_factor

    def to_dict(self) -> dict[str, Any]:
        """As in the results of `testbed run --json`."""
        return {
            "step": self.step,
            "collective": self.name,
            "algorithm": self.algorithm,
            "ranks": self.ranks,
            **({} if self.group is None else {"group": self.group}),
            "size_bytes": self.size_bytes,
            "time_ns": round(self.time_ns, 3),
            "algbw_Bps": self.algbw_bps,
            "busbw_Bps": self.busbw_bps,
            **{key: value for key in _OF_TRAINING if (value := getattr(self, key)) is not None},
            "how": self.how,
            "paused": None if self.paused is None else [list(hop) for hop in self.paused],
            **({"holds_up": self.holds_up} if self.paused and self.holds_up is not None else {}),
            **({"no_model": list(self.no_model)} if self.no_model else {}),
            **({"chosen": dict(self.chosen)} if self.chosen else {}),
            **({"error_percent": round(self.bar.percent, 2), "beyond": list(self.bar.beyond)} if self.bar else {}),
        }


@dataclass(frozen=True)
class Prediction:
    """All lines, and what the model has left out of this experiment."""

    figures: tuple[Figure, ...]
    left_out: tuple[str, ...]
