"""Entries of the gallery, made again, give the figures of its page (all of them: `./setup.sh prove gallery`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from railbed.gallery import entries, make
from railbed.gallery.kept import kept

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["conspirator", "pipeline-bubble"])
def test_an_entry_made_again_is_as_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert make(entries((name,))[0]) == kept()[name]
