"""Predictions: what an experiment should take, without a fabric and without root, as `testbed predict` says it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railbed.experiment import Experiment, hinted

if TYPE_CHECKING:
    import pandas as pd

    from testbed.predict.figure import Prediction


class Predictions:
    """`frame`: a row for each size of each step, in front of it the values of a sweep's point.

    `left_out`: what the model does not know, of these experiments.
    """

    def __init__(self, points: list[tuple[dict[str, Any], Prediction]]) -> None:
        self._points = points

    @cached_property
    def frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([{**at, **figure.to_dict()} for at, made in self._points for figure in made.figures])

    @cached_property
    def left_out(self) -> list[str]:
        return list(dict.fromkeys(text for _, made in self._points for text in made.left_out))

    def __repr__(self) -> str:
        return f"<{len(self.frame)} predictions, {len(self.left_out)} things left out>"

    def _repr_html_(self) -> str:
        missing = "".join(f"<li>{escape(text)}</li>" for text in self.left_out)
        return f"{self.frame.to_html(index=False)}<p>Left out:</p><ul>{missing}</ul>"


def predict(experiment: Experiment | str | Path | Mapping[str, Any]) -> Predictions:
    """How long its steps take; of a sweep, at every point. Raises InputError for what there is no model of."""
    from testbed.predict.large import of_any_size
    from testbed.predict.predict import predict as predicted
    from testbed.run.sweep import check, points

    with hinted(), of_any_size():
        model = Experiment.of(experiment).model
        if not model.sweep:
            return Predictions([({}, predicted(model))])
        check(model)
        return Predictions([(dict(p.values), predicted(p.experiment, swept=p.keys)) for p in points(model)])
