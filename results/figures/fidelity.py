"""How far a run's figures can be trusted: the verdict, why, and what to change.

Virtual clock: the figures are those of the model, exactly, unless a frame had to be settled late or the controller
did not answer; then they depend on the machine. Real clock: what counts is how late events ran against the
smallest time that the fabric models (one full frame's serialisation and one cable's delay), and what was lost or stolen
outside the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topologies.graph.frames import FRAME_BYTES

VERDICTS = ("exact", "good", "doubtful", "invalid")  # from best to worst

# Share of the smallest hop up to which lateness is good, and up to which it is doubtful.
GOOD, DOUBTFUL = 0.01, 0.05
# Share of frames up to which an irregularity makes a run doubtful; above, it is invalid.
FEW = 0.001
# Share of CPU time taken by the hypervisor: doubtful above the first, invalid above the second.
STEAL_DOUBTFUL, STEAL_INVALID = 0.01, 0.1


@dataclass
class Fidelity:
    """The verdict with its reasons and, for each that can be mended, what to change."""

    verdict: str
    reasons: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def worsen(self, verdict: str, reason: str, advice: str = "") -> None:
        """Adds a reason; the verdict becomes `verdict` unless it is worse already."""
        self.verdict = max(self.verdict, verdict, key=VERDICTS.index)
        self.reasons.append(reason)
        if advice and advice not in self.advice:
            self.advice.append(advice)

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "reasons": self.reasons, "advice": self.advice}


def smallest_hop_ns(cables: Iterable[tuple[float, float]], mtu_bytes: int) -> float:
    """The smallest over (rate_bps, delay_ns) of one full frame's serialisation plus the delay, in emulated ns."""
    bits = 8 * (mtu_bytes + FRAME_BYTES)
    return min((bits / rate * 1e9 + delay for rate, delay in cables), default=0.0)


def virtual_clock(counters: Mapping[str, Any]) -> Fidelity:
    """Verdict of a run with the virtual clock from the `fidelity` object of fabricd's counters."""
    verdict = Fidelity("exact")
    hops = counters.get("frame_hops", 0)
    if flagged := counters.get("flagged", 0):
        verdict.worsen(
            _by_share(flagged, hops),
            f"{flagged} of {hops} frame hops were late copies or foreign frames{_examples(counters)}",
            "look for programs that send into the fabric's bridges, and for rules that copy to the controller",
        )
    if timeouts := counters.get("controller_timeouts", 0):
        verdict.worsen(
            "doubtful",
            f"the controller left {timeouts} event(s) unanswered, so when its rules took effect depends on the machine",
            "see logs/controller.log",
        )
    _rules(verdict, counters)
    _fast_path(verdict, counters)
    _losses(verdict, counters)
    return verdict


def real_clock(
    counters: Mapping[str, Any], *, smallest_hop_ns: float, dilation: float, steal: float | None
) -> Fidelity:
    """Verdict of a run with the real clock.

    `smallest_hop_ns` is emulated, `steal` the share of CPU time stolen during the run (None: unknown).
    """
    verdict = Fidelity("good")
    hop = smallest_hop_ns * dilation
    p99 = (counters.get("lateness_ns") or {}).get("p99") or 0.0
    share = p99 / hop if hop else 0.0
    reason = (
        f"99 % of events ran at most {_wall(p99)} late, {share:.2%} of the smallest hop ({_wall(hop)} of wall time)"
    )
    if share <= GOOD:
        verdict.worsen("good", reason)
    else:
        enough = 10 ** _digits(dilation * share / GOOD)
        verdict.worsen(
            "doubtful" if share <= DOUBTFUL else "invalid",
            reason,
            f"use clock: {{real: {{dilation: {enough}}}}}, a smaller fabric, or an idle machine",
        )
    _losses(verdict, counters)
    if drops := counters.get("netdev_drops", 0):
        verdict.worsen(
            "doubtful",
            f"{drops} packets were dropped in the hosts' kernel interfaces, before or after the emulated NIC",
            "send less, or raise the dilation",
        )
    if steal is not None and steal > STEAL_DOUBTFUL:
        verdict.worsen(
            "doubtful" if steal <= STEAL_INVALID else "invalid",
            f"the hypervisor took {steal:.1%} of the CPU time",
            "run where the machine's cores are its own, or raise the dilation",
        )
    return verdict


def silent(verdict: Fidelity, event: Mapping[str, Any]) -> None:
    """Takes in an event of somebody who did not answer, or was stopped, while the run went on."""
    kind = event["event"]
    if kind == "controller_timeout":
        verdict.worsen("doubtful", f"the {event['who']} did not answer: {event['reason']}", "see logs/controller.log")
    elif kind == "controller_stopped":
        verdict.worsen("doubtful", f"the controller was stopped (process {event['pid']})", "see who stopped it")
    elif kind in ("holder_died", "holder_stopped"):
        how = "ended" if kind == "holder_died" else "was stopped"
        verdict.worsen("doubtful", f"the process that holds the hosts' namespaces {how}")


def _rules(verdict: Fidelity, counters: Mapping[str, Any]) -> None:
    if times := counters.get("rules_unconfirmed", 0):
        verdict.worsen(
            "doubtful",
            f"Open vSwitch did not confirm {times} time(s) that it had forgotten old rules: frames may have met them "
            "for a while that depends on the machine",
            "see logs/controller.log and logs/ovs-vswitchd.log",
        )


def _fast_path(verdict: Fidelity, counters: Mapping[str, Any]) -> None:
    if changed := counters.get("tables_changed", 0):
        verdict.worsen(
            "doubtful",
            f"flow tables were changed {changed} time(s) while the clock waited for nobody: at which emulated time "
            "depends on the machine",
            "let the controller change them: it does when a port or a fault changes, with the clock standing still",
        )
    if stale := counters.get("fast_stale", 0):
        verdict.worsen(
            "doubtful",
            f"{stale} time(s) Open vSwitch did with a frame what the fast path no longer knew: others went the old way",
            "run it again with control.fast_path: off",
        )


def _by_share(count: int, hops: int) -> str:
    return "doubtful" if count <= FEW * hops else "invalid"


def _losses(verdict: Fidelity, counters: Mapping[str, Any]) -> None:
    hops = counters.get("frame_hops", 0)
    if losses := counters.get("unmodelled_losses", 0):
        verdict.worsen(
            _by_share(losses, hops),
            f"{losses} of {hops} frame hops were lost in Open vSwitch, a TAP device or a socket, not in the model",
            "raise the dilation, or use the virtual clock",
        )


def _examples(counters: Mapping[str, Any]) -> str:
    examples = counters.get("flagged_examples") or []
    if not examples:
        return ""
    first = examples[0]
    return f" (such as {first['what']} on {first['switch']} port {first['port']}: {first['headers']})"


def _digits(number: float) -> int:
    """The smallest n with 10^n >= number."""
    n = 0
    while 10**n < number:
        n += 1
    return n


def _wall(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


class StealMeter:
    """Share of CPU time that the hypervisor took between making this and `share()`, from /proc/stat."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def share(self) -> float | None:
        """0..1; None where the kernel does not tell."""
        after = self._read()
        if self._before is None or after is None:
            return None
        total, steal = (a - b for a, b in zip(after, self._before, strict=True))
        return steal / total if total > 0 else 0.0

    def _read(self) -> tuple[int, int] | None:
        """Jiffies of all CPUs in total, and stolen."""
        try:
            numbers = [int(n) for n in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return None
        return (sum(numbers), numbers[7]) if len(numbers) == 8 else None
