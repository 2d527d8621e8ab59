"""The testbed from Python: for notebooks and scripts (docs/python.md).

Everything here is what the commands do, with the same checks, the same figures and the same folders:

    from railbed import Experiment, run

    ring = Experiment("experiments/quickstart.yaml").set({"workload.0.sizes": ["64KiB"]})
    run(ring).results[["size_bytes", "time_ns", "busbw_Bps"]]
"""

from railbed.experiment import Experiment
from railbed.predictions import Predictions, predict
from railbed.runs import run, sweep, tune
from results import Run, Runs, StoreError, load
from testbed.base.errors import InputError, MachineError, UserError
from testbed.run.outcome import RunFailed

__all__ = [
    "Experiment",
    "InputError",
    "MachineError",
    "Predictions",
    "Run",
    "RunFailed",
    "Runs",
    "StoreError",
    "UserError",
    "load",
    "predict",
    "run",
    "sweep",
    "tune",
]
