"""What serving steps gave, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from results.figures.serving import PING_PONG, REQUESTS, SHARES, WAITS, served
from results.figures.timeline import StepTime
from testbed.tables.cells import grid, microseconds


def of_steps(about: Sequence[Mapping[str, Any]], times: Sequence[StepTime]) -> Iterator[RenderableType]:
    """`about`: what is said of the steps of the run."""
    serving = [time for time in times if time.step < len(about) and about[time.step].get("serving")]
    if not serving:
        return
    yield Text("#")
    yield Text("# serving", style="bold")
    table = grid(
        ("step", "", 5), ("iter", "", 4), ("between", "tokens (us)", 11), ("first of", "all (us)", 9),
        ("tokens", "(1/s)", 9), ("a GPU", "(1/s)", 9), ("tokens", "(1/cost)", 9),
    )  # fmt: skip
    for time in serving:
        step = about[time.step]
        row = served(time, step)
        cost = row["tokens_per_cost"]
        table.add_row(
            str(time.step), str(time.iteration), _time(row["between_tokens_ns"]), _time(row["batch_ns"]),
            f"{row['tokens_per_s_gpu'] * step['serving']['gpus']:.4g}", f"{row['tokens_per_s_gpu']:.4g}",
            "-" if cost is None else f"{cost:.4g}",
        )  # fmt: skip
    yield table
    played = [n for n in dict.fromkeys(time.step for time in serving) if about[n]["serving"]["kind"] == PING_PONG]
    asked = [time for time in serving if about[time.step]["serving"]["kind"] == REQUESTS]
    if asked:
        yield from _waits([(time, about[time.step]) for time in asked])
    if played:
        yield from _balance([(n, about[n]["serving"]) for n in played])


def _waits(asked: Sequence[tuple[StepTime, Mapping[str, Any]]]) -> Iterator[RenderableType]:
    yield Text("#")
    yield Text("# requests: time to the first token, between tokens, and to the last (us)", style="bold")
    heads = [(what, f"p{100 * share:.0f}", 8) for what in ("first", "between", "latency") for share in SHARES]
    table = grid(("step", "", 5), ("iter", "", 4), ("requests", "", 8), *heads)
    late = []
    for time, step in asked:
        row = served(time, step)
        keys = [f"{what}_p{round(100 * share)}_ns" for what in WAITS for share in SHARES]
        count = len(step["serving"]["requests"])
        table.add_row(str(time.step), str(time.iteration), str(count), *(_time(row[key]) for key in keys))
        if row["otherwise"]:
            late.append(f"# step {time.step}: {row['otherwise']} of {count} would have joined another iteration")
    yield table
    for text in dict.fromkeys(late):
        yield Text(f"{text}, by the times that came out (docs/serving.md)", style="yellow")


def _time(ns: float | None) -> str:
    return "-" if ns is None else microseconds(ns)


def _balance(steps: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[RenderableType]:
    """MegaScale-Infer's rule for a ping-pong."""
    yield Text("#")
    yield Text("# ping-pong: m Tf >= Ta + Te + 2 Tc hides messages, if wire <= Tf; Ta ~ Te", style="bold")
    table = grid(
        ("step", "", 5), ("m", "", 3), ("needs", "m", 6), ("Ta", "(us)", 8), ("Te", "(us)", 8),
        ("busiest", "(rank)", 7), ("Tc", "(us)", 8), ("wire", "(us)", 8), ("formula", "between", 9),
        ("formula", "first", 9), ("waits", "", 9),
    )  # fmt: skip
    for number, step in steps:
        exchange = (step["dispatch_ns"] + step["combine_ns"]) / 2
        times = (step["attention_ns"], step["expert_ns"])
        table.add_row(
            str(number), str(step["micro_batches"]), "-" if step["needed"] is None else f"{step['needed']:.2f}",
            *map(microseconds, times), str(step["busiest"]), microseconds(exchange), microseconds(step["wire_ns"]),
            microseconds(step["form_between_ns"]), microseconds(step["form_batch_ns"]),
            "both" if step["needed"] is None else _idle(*times),
        )  # fmt: skip
    yield table


def _idle(attention_ns: float, expert_ns: float) -> str:
    """Which pool is idle for more than a tenth because the other one is slower."""
    if min(attention_ns, expert_ns) >= 0.9 * max(attention_ns, expert_ns):
        return "neither"
    return "attention" if attention_ns < expert_ns else "experts"
