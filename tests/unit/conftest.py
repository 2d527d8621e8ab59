"""Labs of unit tests are fakes: to an ordinary user's tests they come up as if it were root."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
