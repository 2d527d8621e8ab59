"""Results: the run store, metrics, the fidelity verdict, and `load`, which gives a run's pandas frames."""

from results.load import Run, load
from results.store import StoreError

__all__ = ["Run", "StoreError", "load"]
