"""Results: the run store, metrics, the fidelity verdict, and `load`, which gives a run's pandas frames."""

from results.store.folder import StoreError
from results.store.load import Run, load

__all__ = ["Run", "StoreError", "load"]
