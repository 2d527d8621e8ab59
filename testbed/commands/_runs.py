"""Stored runs and sweeps by what a user calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results import Run
    from results.store.sweeps import Sweep


def load_run(run: str) -> Run:
    from results import StoreError
    from results.store.load import load
    from testbed.base.errors import InputError

    try:
        return load(run)
    except StoreError as error:
        raise InputError(error.what, error.where, error.hint) from None


def sweep_of(run: str) -> Sweep | None:
    from results import StoreError
    from results.store.sweeps import sweep
    from testbed.base.errors import InputError

    try:
        return sweep(run)
    except StoreError as error:
        raise InputError(error.what, error.where, error.hint) from None
