"""The report of a game that is over: the truth, the shortest way to it, what was looked at, what was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drills.ending import Ending
from drills.log import INSTRUCTOR, LogEntry
from drills.session import clock
from drills.stage import Stage


def data(code: str, stage: Stage, entries: Sequence[LogEntry], ending: Ending) -> dict[str, Any]:
    case = stage.case
    drill = case.drill
    return {
        "drill": code,
        "id": drill.id,
        "seed": case.seed,
        "title": drill.title,
        "healthy": not stage.drawn.truth,
        "faults": stage.written(),
        "benign": [injection.written() for injection in stage.drawn.benign],
        "evidence": [] if case.healthy else list(drill.evidence or drill.hints),
        "looked": dict(Counter(e.line for e in entries if e.ok and not e.acts and not e.by)),
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
    return "\n".join(f"{label:10}{text}" for _, lines in sections(report) for label, text in lines)


def as_markdown(report: dict[str, Any], picture: str = "") -> str:
    """`picture`: the name of one beside the file."""
    parts = [f"# Drill {report['drill']}: {report['title']}", ""]
    if picture:
        parts += [f"![Step time, with what was done]({picture})", ""]
    for title, lines in sections(report):
        known = ("", lines[0][0])  # the title says that one
        items = [text if label in known else f"{label} {text}" for label, text in lines]
        parts += [f"## {title}", "", *(f"- {item}" for item in items), ""]
    return "\n".join(parts)


def write(report: dict[str, Any], path: Path) -> list[Path]:
    """By the suffix: .md with a picture beside it, or the picture alone."""
    from results.pictures.drawing import save
    from results.pictures.drill import step_times

    page = path.suffix.lower() == ".md"
    (picture,) = save([step_times(report)], path.with_suffix(".png") if page else path)
    if page:
        path.write_text(as_markdown(report, picture.name))
        return [path, picture]
    return [picture]


def sections(report: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Titles, and their lines with labels; a line without a label continues the one before."""
    score = report["score"]
    truth = [("truth", report["truth"])]
    for fault in report["faults"]:
        more = ", ".join(f"{k} {v}" for k, v in fault.items() if k not in ("fault", "on") and v not in (None, "both"))
        truth.append(("", f"{fault['fault']} on {fault['on']} ({more})"))
    answer = [("answer", report["answer"] or "none"), ("score", f"{score['total']:.1f}" if score else _unfit(report))]
    evidence = _labelled("evidence", [f"{k}. {line}" for k, line in enumerate(report["evidence"], 1)])
    looks = [f"{line} ({n} times)" if n > 1 else line for line, n in report["looked"].items()]
    looked = _labelled("looked at", looks or ["nothing"])
    acted: list[str] = []
    for entry in report["acted"]:
        acted += [f"{clock(entry['time_ns'])}: {entry['line']}", *(f"  {note}" for note in entry.get("notes", ()))]
    instructed = _labelled("teacher", [f"{clock(e['time_ns'])}: {e['line']}" for e in report.get("instructed", ())])
    job = _measured_job(report) if "steps_ns" in report else _job(report)
    named = [("Truth", truth), ("Answer", answer), ("Evidence", evidence), ("Looked at", looked),
             ("Did", _labelled("did", acted)), ("Instructor", instructed), ("Job", job)]  # fmt: skip
    return [(title, lines) for title, lines in named if lines]


def _labelled(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if k == 0 else "", line) for k, line in enumerate(lines)]


def _unfit(report: dict[str, Any]) -> str:
    reasons = "; ".join(report["fidelity"]["reasons"])
    return f"none: environment_invalid, fidelity {report['fidelity']['verdict']}: {reasons}"


def _measured_job(report: dict[str, Any]) -> list[tuple[str, str]]:
    """On the real clock: means of steps."""
    steps = [f"{name} {'none has ended' if ns is None else f'{ns / 1000:.1f} us'}"
             for name, ns in report["steps_ns"].items()]  # fmt: skip
    return _labelled("job", [f"step {', '.join(steps)}", f"fidelity {report['fidelity']['verdict']}"])


def _job(report: dict[str, Any]) -> list[tuple[str, str]]:
    healthy = 1e9 / report.get("healthy_period_ns", report["healthy_step_ns"])  # older logs have the step alone
    share = {name: f"{speed / healthy:.0%}" for name, speed in report["speed"].items()}
    job = [f"{share['now']} of the healthy speed"]
    if report["speed"]["fault"] != report["speed"]["now"]:
        job[0] += f"; without you {share['fault']}"
    if report["score"]["fixed"] is not None:
        job[0] += f"; with the cause mended {share['mended']}"
    job.append(f"your actions have cost {report['lost_steps']:.1f} steps")
    if failed := report.get("failed_qps"):
        job.append(f"{failed} queue pairs have failed, and do not come back by themselves: config job restart")
    return _labelled("job", job)
