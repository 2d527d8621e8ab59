"""fabricd is there before the first test's time begins: to compile it takes minutes on a machine that is busy."""

from __future__ import annotations

import pytest

from tests.parts.fabricd_fixture import fabricd_binary


@pytest.fixture(scope="session", autouse=True)
def _fabricd_is_built() -> None:
    fabricd_binary()
