"""A calibration as plain data, for programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.calibrate.held import Predicted, scores
from testbed.calibrate.work import Outcome
from testbed.cluster.profile import dump
from testbed.cluster.regions import region


def to_dict(outcome: Outcome) -> dict[str, Any]:
    made = outcome.made
    model = np.exp(made.fitted.f)
    return {
        "profile": dump(outcome.profile),
        "points": [
            {
                "collective": one.point.collective, "nodes": one.point.nodes, "gpus": one.point.gpus,
                "size_bytes": one.point.size_bytes, "time_ns": one.time_ns, "model_ns": round(float(model[k]), 3),
                "held_error": round(float(np.expm1(made.held[k])), 6),
                "weight": round(float(made.fitted.weights[k]), 4),
                "rows": [row.place for row in one.rows],
            }
            for k, one in enumerate(made.points)
        ],
        "left_out": dict(outcome.log.left_out),
        "notes": list(outcome.log.warnings),
        "held": [of_predicted(one) for one in outcome.held],
        "scores": [
            {"size": s.name, "points": s.points, "median": s.median, "worst": s.worst, "marks": s.marks, "met": s.met}
            for s in scores(outcome.held, more_nodes=outcome.more_nodes)
        ],
    }  # fmt: skip


def of_predicted(one: Predicted) -> dict[str, Any]:
    point = one.one.point
    return {
        "collective": point.collective, "nodes": point.nodes, "gpus": point.gpus, "size_bytes": point.size_bytes,
        "region": region(point.size_bytes), "time_ns": one.one.time_ns, "predicted_ns": round(one.time_ns, 3),
        "error": round(one.error, 6), "bar_percent": round(one.bar.percent, 2), "inside": one.covered,
        "beyond": list(one.bar.beyond), "choice": one.choice,
    }  # fmt: skip
