"""Results: the run store, metrics, the fidelity verdict, and `load`, which gives a run's pandas frames."""

from results.store.folder import StoreError
from results.store.load import Run
from results.store.many import IncompleteWarning, Runs, load, load_many

__all__ = ["IncompleteWarning", "Run", "Runs", "StoreError", "load", "load_many"]
