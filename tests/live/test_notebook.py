"""The notebook of the docs as a script: each cell says what is stored in it (Jupyter: `./setup.sh prove notebook`)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests import prove_notebook
from tests.parts import cells


def test_what_the_notebook_shows_is_what_its_cells_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = cells.read()
    stored = [cells.kept(cell) for cell in cells.code(notebook)]
    said = list(cells.as_a_script(notebook))
    assert len(stored) == len(said) > 8
    for (source, now), before in zip(said, stored, strict=True):
        assert [text.replace(f"{tmp_path}/", "") for text in now] == before, source


def test_another_figure_in_the_notebook_is_found() -> None:
    notebook = cells.read()
    other = copy.deepcopy(notebook)
    cell = next(cell for cell in cells.code(other) if "30.45" in str(cell["outputs"]))
    html = cell["outputs"][0]["data"]["text/html"]
    cell["outputs"][0]["data"]["text/html"] = [line.replace("30.45", "30.46") for line in html]
    assert not prove_notebook.moved(notebook, notebook) and len(prove_notebook.moved(notebook, other)) == 1
