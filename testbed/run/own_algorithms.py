"""The files of algorithms of a user's own, as a run was done with them: copies in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workloads.own.name import parse

if TYPE_CHECKING:
    from testbed.experiment import Experiment

FOLDER = "algorithms"


def keep(experiment: Experiment, folder: Path) -> None:
    """Where two files have one name, the content tells them apart."""
    for step in experiment.workload:
        if (name := parse(str(getattr(step, "algorithm", "")))) is None:
            continue
        from workloads.own import files

        text = files.load(str(name)).text
        copy = folder / FOLDER / Path(name.path).name
        copy.parent.mkdir(exist_ok=True)
        if copy.exists() and copy.read_bytes() != text:
            copy = copy.with_name(f"{name.digest[:12]}-{copy.name}")
        copy.write_bytes(text)
