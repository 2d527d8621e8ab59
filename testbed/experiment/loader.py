"""From a file to an Experiment. All mistakes are reported at once, each with file and line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.base.model_file import FileKind, model_of, text_of
from testbed.experiment.model import Experiment

EXPERIMENT = FileKind(
    "an experiment",
    "ready ones are in experiments/; where that is not, `testbed examples` brings it",
    "start from experiments/quickstart.yaml; docs/experiment.md has all keys",
)


def load(path: str | Path, defaults: Mapping[str, Any] | None = None) -> Experiment:
    """Read and validate an experiment file; `defaults` are keys that it may leave out although they are required.

    Raises InputError; touches nothing but the file.
    """
    return loads(text_of(path, EXPERIMENT), str(path), Path(path).parent, defaults)


def loads(
    text: str, name: str = "experiment", directory: Path = Path(), defaults: Mapping[str, Any] | None = None
) -> Experiment:
    """As `load`, from text; `name` stands for the file in messages, `directory` is where relative paths start."""
    experiment, written, place = model_of(Experiment, text, name, EXPERIMENT, directory, defaults)
    experiment._written, experiment._directory, experiment._place = written, directory, place
    return experiment
