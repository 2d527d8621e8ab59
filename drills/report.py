"""What a game is told when it is over: the truth, the shortest way to it, what was looked at, what was done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drills.ending import Ending
from drills.log import INSTRUCTOR, Entry
from drills.session import clock
from drills.stage import Stage


def told(code: str, stage: Stage, entries: Sequence[Entry], ending: Ending) -> dict[str, Any]:
    """All of it as plain data."""
    case = stage.case
    drill = case.drill
    looked: dict[str, int] = {}
    for entry in entries:
        if entry.ok and not entry.acts and not entry.by:
            looked[entry.line] = looked.get(entry.line, 0) + 1
    return {
        "drill": code,
        "id": drill.id,
        "seed": case.seed,
        "title": drill.title,
        "healthy": not stage.drawn.truth,
        "faults": stage.written(),
        "benign": [injection.written() for injection in stage.drawn.benign],
        "evidence": [] if case.healthy else list(drill.evidence or drill.hints),
        "looked": looked,
        "acted": [
            {"time_ns": e.time_ns, "took_ns": e.took_ns, "line": e.line, "notes": list(e.notes)}
            for e in entries
            if e.acts and not e.by
        ],
        "failed_qps": sum(qp["state"] == "error" for qp in stage.world.counters()["qps"]),
        "instructed": [{"time_ns": e.time_ns, "line": e.line} for e in entries if e.by == INSTRUCTOR],
        "began_ns": stage.began_ns,
        "warmup_ns": drill.warmup,
        "healthy_step_ns": stage.healthy_step_ns,
        "healthy_period_ns": stage.healthy_period_ns,
        "slo_ns": stage.healthy_step_ns * drill.slo.step,
        "courses": {name: [list(step) for step in steps] for name, steps in ending.courses.items()},
        **ending.to_dict(),
    }  # fmt: skip


def as_text(report: dict[str, Any]) -> str:
    """For a terminal."""
    return "\n".join(f"{label:10}{text}" for _, lines in sections(report) for label, text in lines)


def as_markdown(report: dict[str, Any], picture: str = "") -> str:
    """For a file; with the name of a picture beside it."""
    parts = [f"# Drill {report['drill']}: {report['title']}", ""]
    if picture:
        parts += [f"![Step time, with what was done]({picture})", ""]
    for title, lines in sections(report):
        known = ("", lines[0][0])  # the title says that one
        said = [text if label in known else f"{label} {text}" for label, text in lines]
        parts += [f"## {title}", "", *(f"- {line}" for line in said), ""]
    return "\n".join(parts)


def write(report: dict[str, Any], path: Path) -> list[Path]:
    """As the ending says: .md with a picture beside it, or the picture alone."""
    from results.pictures.drawing import save
    from results.pictures.drill import step_times

    page = path.suffix.lower() == ".md"
    (picture,) = save([step_times(report)], path.with_suffix(".png") if page else path)
    if page:
        path.write_text(as_markdown(report, picture.name))
        return [path, picture]
    return [picture]


def sections(report: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Title, and lines with their labels; a line without one goes on with what the label before it says."""
    s = report["score"]
    truth = [("truth", report["truth"])]
    for fault in report["faults"]:
        more = ", ".join(f"{k} {v}" for k, v in fault.items() if k not in ("fault", "on") and v not in (None, "both"))
        truth.append(("", f"{fault['fault']} on {fault['on']} ({more})"))
    answer = [("answer", report["answer"] or "none"), ("score", f"{s['total']:.1f}" if s else _unfit(report))]
    evidence = _labelled("evidence", [f"{k}. {line}" for k, line in enumerate(report["evidence"], 1)])
    looks = [f"{line} ({n} times)" if n > 1 else line for line, n in report["looked"].items()]
    looked = _labelled("looked at", looks or ["nothing"])
    acted = _labelled("did", [line for e in report["acted"] for line in _done(e)])
    instructed = _labelled("teacher", [f"{clock(e['time_ns'])}: {e['line']}" for e in report.get("instructed", ())])
    named = [("Truth", truth), ("Answer", answer), ("Evidence", evidence), ("Looked at", looked), ("Did", acted),
             ("Instructor", instructed)]  # fmt: skip
    job = _measured_job(report) if "steps_ns" in report else _job(report)
    return [(title, lines) for title, lines in [*named, ("Job", job)] if lines]


def _done(acted: dict[str, Any]) -> list[str]:
    return [f"{clock(acted['time_ns'])}: {acted['line']}", *(f"  {note}" for note in acted.get("notes", ()))]


def _labelled(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if k == 0 else "", line) for k, line in enumerate(lines)]


def _unfit(report: dict[str, Any]) -> str:
    reasons = "; ".join(report["fidelity"]["reasons"])
    return f"none: environment_invalid, fidelity {report['fidelity']['verdict']}: {reasons}"


def _measured_job(report: dict[str, Any]) -> list[tuple[str, str]]:
    """With the real clock: means of steps."""
    told = [f"{name} {'none has ended' if ns is None else f'{ns / 1000:.1f} us'}"
            for name, ns in report["steps_ns"].items()]  # fmt: skip
    return _labelled("job", [f"step {', '.join(told)}", f"fidelity {report['fidelity']['verdict']}"])


def _job(report: dict[str, Any]) -> list[tuple[str, str]]:
    s, speed = report["score"], report["speed"]
    healthy = 1e9 / report.get("healthy_period_ns", report["healthy_step_ns"])  # older logs have the step alone
    job = [f"{_share(speed['now'], healthy)} of the healthy speed"]
    if speed["fault"] != speed["now"]:
        job[0] += f"; without you {_share(speed['fault'], healthy)}"
    if s["fixed"] is not None:
        job[0] += f"; with the cause mended {_share(speed['mended'], healthy)}"
    job.append(f"your actions have cost {report['lost_steps']:.1f} steps")
    if failed := report.get("failed_qps"):
        job.append(f"{failed} queue pairs have failed, and do not come back by themselves: config job restart")
    return _labelled("job", job)


def _share(speed: float, healthy: float) -> str:
    return f"{speed / healthy:.0%}"
