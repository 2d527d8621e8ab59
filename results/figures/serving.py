"""What a serving step gave: time between tokens, throughput per GPU and per cost; of requests, how long they wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from results.figures.timeline import StepTime, picoseconds
from results.figures.values import percentile

PING_PONG, REQUESTS = "ping_pong", "requests"

SERVED = ("between_tokens_ns", "batch_ns", "tokens_per_s_gpu", "tokens_per_cost")
"""Keys of `served`."""

WAITS = ("first_token", "between_tokens", "latency")
SHARES = (0.5, 0.9, 0.99)
OF_REQUESTS = tuple(f"{what}_p{round(100 * share)}_ns" for what in WAITS for share in SHARES)
"""Keys of `served` of a step with requests."""

_HOUR_S = 3600
_TOKEN = re.compile(r"[a-z]+([0-9]+)\.")  # which token a task of a ping-pong is for


def served(one: StepTime, about: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one iteration of a step that is described so; {} of one that serves nobody.

    A token is there when the ranks that answer have it: what others still do for it does not count.
    """
    serving = about.get("serving")
    if not serving:
        return {}
    between, batch = _of_ping_pong(one, serving) if serving["kind"] == PING_PONG else (None, None)
    rate = one.row(about.get("tokens"))["tokens_per_s"]
    if between:
        rate = about["tokens"] / serving["output"] / between * 1e9
    cost = serving["cost"]
    figures: dict[str, Any] = {
        "between_tokens_ns": between,
        "batch_ns": batch,
        "tokens_per_s_gpu": rate / serving["gpus"],
        "tokens_per_cost": rate * _HOUR_S / cost if cost else None,
    }
    if serving["kind"] == REQUESTS:
        return figures | _of_requests(one, serving)
    if serving["kind"] == PING_PONG:
        return figures
    answers = set(serving["answers"])
    ends = [picoseconds(row["end_ns"]) for row in one.rows if row["rank"] in answers]
    return figures | {"between_tokens_ns": (max(ends) - one.span[0]) / 1000 / serving["output"]}


def _of_ping_pong(one: StepTime, serving: Mapping[str, Any]) -> tuple[float | None, float]:
    """Time between a sequence's tokens (None with one token each), and until all sequences have their first, ns.

    The latter includes filling and emptying the pipeline, which later tokens do not wait for.
    """
    answers, ends = set(serving["answers"]), [0.0] * serving["output"]
    for row in one.rows:
        if row["rank"] in answers and (token := _TOKEN.match(row["task"])):
            number = int(token[1])
            ends[number] = max(ends[number], _since(one, row["end_ns"]))
    return ((ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None), ends[0]


def _of_requests(one: StepTime, serving: Mapping[str, Any]) -> dict[str, Any]:
    """Percentiles of the requests' times to their first token, between tokens (of all requests), and to the last."""
    arrivals = [arrival for arrival, _, _ in serving["requests"]]
    tokens = tokens_of(one, serving)
    waits = {
        "first_token": [times[0] - arrival for arrival, times in zip(arrivals, tokens, strict=True)],
        "between_tokens": [b - a for times in tokens for a, b in pairwise(times)],
        "latency": [times[-1] - arrival for arrival, times in zip(arrivals, tokens, strict=True)],
    }
    figures = {
        f"{what}_p{round(100 * share)}_ns": percentile(waits[what], share) if waits[what] else None
        for what in WAITS
        for share in SHARES
    }
    between = waits["between_tokens"]
    mean = sum(between) / len(between) if between else None
    return {"between_tokens_ns": mean, "otherwise": otherwise(one, serving), **figures}


def tokens_of(one: StepTime, serving: Mapping[str, Any]) -> list[list[float]]:
    """When each request got its tokens, ns from the begin on."""
    tokens: list[list[float]] = [[] for _ in serving["requests"]]
    ends = _Ends(one)
    for pool in serving["pools"]:
        for k, (gives, _, _) in enumerate(pool["iterations"]):
            for request in gives:
                rank = pool["where"].get(str(request))
                tokens[request].append(ends.at(pool["end"].format(k), pool["ranks"] if rank is None else [rank]))
    return [sorted(times) for times in tokens]


def otherwise(one: StepTime, serving: Mapping[str, Any]) -> int:
    """How many requests would have joined another iteration, had their pool known the measured times.

    Iterations are put together beforehand, by what they are expected to take (workloads/serving/batching.py).
    """
    ends, starts, count = _Ends(one), _starts(one), 0
    arrivals, handed = [arrival for arrival, _, _ in serving["requests"]], _handed(one, len(serving["requests"]))
    for pool in serving["pools"]:
        ready = arrivals if pool["reads"] else handed
        left = [1 if not pool["answers"] else output - (not pool["reads"]) for _, _, output in serving["requests"]]
        given = [0] * len(left)
        name, iterations = pool["name"], pool["iterations"]
        for k, (gives, joined, _) in enumerate(iterations):
            before = ends.at(pool["end"].format(k - 1), pool["ranks"]) if k else 0.0
            busy = any(0 < n < of for n, of in zip(given, left, strict=True))
            for request in joined:
                sooner = (
                    k > 0 and request not in iterations[k - 1][2] and ready[request] <= starts[f"{name}{k - 1}.begin"]
                )
                count += sooner or (busy and ready[request] > before)
            for request in gives:
                given[request] += 1
    return count


def _handed(one: StepTime, requests: int) -> list[float]:
    """When each request's cache was where it is needed."""
    handed = [0.0] * requests
    for row in one.rows:
        if row["operation"] == "recv" and row["kind"] == "cache":
            request = int(row["task"].removeprefix("cache").partition(".")[0])
            handed[request] = max(handed[request], _since(one, row["end_ns"]))
    return handed


class _Ends:
    """When ranks were through with tasks."""

    def __init__(self, one: StepTime) -> None:
        self._of: dict[str, dict[int, float]] = {}
        for row in one.rows:
            self._of.setdefault(row["task"], {})[row["rank"]] = _since(one, row["end_ns"])

    def at(self, task: str, ranks: Iterable[int]) -> float:
        """When the last of these ranks was, of those that have the task."""
        ends = self._of[task]
        return max(ends[rank] for rank in ranks if rank in ends)


def _starts(one: StepTime) -> dict[str, float]:
    """Task -> when the first rank began it."""
    starts: dict[str, float] = {}
    for row in one.rows:
        starts[row["task"]] = min(starts.get(row["task"], float("inf")), _since(one, row["start_ns"]))
    return starts


def _since(one: StepTime, ns: float) -> float:
    return (picoseconds(ns) - one.span[0]) / 1000


def figures(rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The keys by which steps of these rows are compared."""
    return (*SERVED, *(key for key in OF_REQUESTS if any(key in row for row in rows)))
