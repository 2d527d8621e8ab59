"""nccl-tests' JSON (`-J FILE`, version 3): the same rows, and the real scatter of each if it was measured (`-I 1`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.base.errors import InputError
from testbed.logs.nccl_tests import layout
from testbed.logs.row import BUSBW, Log, Row, named

MOST_DEPTH = 32
_HALVES = ("out_of_place", "in_place")


def read(document: Any, file: str, log: Log, told: str | None = None) -> int:
    """Adds its rows; returns how many it has.  Raises InputError if it is another program's."""
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), list):
        raise InputError("this JSON is not nccl-tests'", file, "of all_reduce_perf .. -J FILE: it has `results`")
    config = _mapping(document.get("config"))
    hosts = _hosts(config.get("devices"))
    args = document.get("args")
    collective = told or (named(str(args[0])) if isinstance(args, list) and args else None)
    if isinstance(version := document.get("nccl_version"), int) and 0 < version < 10**7 and not log.library.version:
        log.library.version = f"{version // 10_000}.{version // 100 % 100}.{version % 100}"
    for entry in document["env"] if isinstance(document.get("env"), list) else ():
        key, _, value = str(entry).partition("=")
        if key.startswith("NCCL_"):
            log.library.set(key, value)
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) else ():
        log.devices.add(str(_mapping(device).get("device_info", "")).strip()[:80])
    aggregated = config.get("aggregated_iterations")
    for number, result in enumerate(document["results"], 1):
        _row(_mapping(result), f"{file}: results[{number - 1}]", number, file, log, collective, hosts, aggregated)
    return len(document["results"])


def _row(
    result: Mapping[str, Any],
    place: str,
    number: int,
    file: str,
    log: Log,
    collective: str | None,
    hosts: dict[int, str],
    aggregated: Any,
) -> None:
    collective = collective or named(str(result.get("experiment_name", "")))
    size = result.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 60:
        return log.leave_out("without a size")
    if isinstance(aggregated, int) and aggregated > 1:
        return log.leave_out("of several calls launched as one")
    if collective is None or collective not in BUSBW:
        return log.leave_out("of an unknown collective", place, "which collective? --collective says it")
    times, spreads, steps = [], [], []
    for half in _HALVES:
        of = _mapping(result.get(half))
        wrong, time = _number(of.get("nwrong")), _number(of.get("time"))
        if wrong:
            return log.leave_out("with wrong results", place, f"{wrong:g} elements are wrong")
        if not time:
            continue
        each = _mapping(result.get(f"{half}_per_iter"))
        stdev, mean = _number(each.get("stdev_us")), _number(each.get("avg_us"))
        times.append(time * 1000.0)
        spreads.append(stdev / mean if stdev is not None and mean else None)
        steps.append(step(each.get("times_us")))
    if not times:
        return log.leave_out("without a time")
    best = times.index(min(times))
    if found := steps[best]:
        what = f"from iteration {found[0]} on the same takes {found[1]:.2f} times as long: throttling, or a bad cable?"
        log.warn(place, what)
    nodes, gpus = layout(hosts)
    done = result.get("actual_iterations")
    iterations = done if isinstance(done, int) else None
    dtype = str(result.get("type", ""))[:20]
    log.add(Row(file, number, collective, size, times[best], nodes, gpus, dtype, spreads[best], iterations))
    return None


def step(times: Any) -> tuple[int, float] | None:
    """Where the level of a series changes for good, and by how much: two levels that do not overlap."""
    if not isinstance(times, list):
        return None
    values = [value for one in times if (value := _number(one))]
    if len(values) < 8:
        return None
    best: tuple[float, int, float] | None = None
    for at in range(3, len(values) - 2):
        before, after = sorted(values[:at]), sorted(values[at:])
        low, high = before[len(before) // 2], after[len(after) // 2]
        apart = after[0] - before[-1] if high > low else before[0] - after[-1]
        if apart > 0 and abs(high / low - 1) > 0.1 and (best is None or apart > best[0]):
            best = apart, at, high / low
    return None if best is None else (best[1], best[2])


def _hosts(devices: Any) -> dict[int, str]:
    hosts = {}
    for device in devices if isinstance(devices, list) else ():
        of = _mapping(device)
        if isinstance(rank := of.get("rank"), int):
            hosts[rank] = str(of.get("hostname", ""))
    return hosts


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e18 else None
