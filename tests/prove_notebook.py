"""Proof that the notebook of the docs gives in Jupyter what it shows: `./setup.sh prove notebook [--keep]`.

Its cells are executed by a kernel (nbclient, of the extra `notebook`), in an empty folder. What each says must be what
is stored in docs/notebook.ipynb, to the last digit; pictures are not compared. `--keep` stores what came out, which is
what `./setup.sh notebook` does. CI needs no Jupyter: tests/live/test_notebook.py runs the same cells as a script.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

from tests.parts import cells
from tests.parts.cells import Notebook


def executed(notebook: Notebook) -> Notebook:
    """With the outputs of its cells. Raises nbclient's CellExecutionError."""
    import nbformat
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory(prefix="railbed-notebook-") as folder:
        os.environ["MPLCONFIGDIR"] = folder  # a kernel's first picture would make a font list, and say so
        made: Any = nbformat.reads(json.dumps(notebook), as_version=4)
        NotebookClient(made, kernel_name="python3", timeout=600, resources={"metadata": {"path": folder}}).execute()
        made["cells"] = [_settled(cell, folder) for cell in made["cells"]]
        return dict(json.loads(nbformat.writes(made)))


def _settled(cell: Any, folder: str) -> Any:
    """Without what is other each time: the folder, times of cells, lines of progress that are gone."""
    cell["metadata"] = {}
    if cell["cell_type"] != "code":
        return cell
    outputs = []
    for output in cell["outputs"]:
        if output.get("name") == "stderr" or output.get("data", {}).get("text/html") == "":
            continue
        for part in (output, output.get("data", {})):
            for key, value in part.items():
                if isinstance(value, str) and key != "image/png":
                    part[key] = value.replace(f"{folder}/", "")
        outputs.append(output)
    cell["outputs"] = outputs
    return cell


def moved(before: Notebook, now: Notebook) -> list[str]:
    """Cells that say something else."""
    found = []
    for old, new in zip(cells.code(before), cells.code(now), strict=True):
        if cells.kept(old) != cells.kept(new):
            source = "".join(new["source"])
            found.append(f"In: {source}\nkept: {cells.kept(old)}\nnow:  {cells.kept(new)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove notebook", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="stores what came out")
    options = parser.parse_args()
    before = cells.read()
    now = executed(before)
    others = moved(before, now)
    print(*others, sep="\n\n")
    print(f"{len(cells.code(now))} cells, {len(others)} say something else")
    if options.keep:
        cells.write(now)
    elif others:
        sys.exit("prove notebook: its outputs are not those of its cells; ./setup.sh notebook stores them anew")


if __name__ == "__main__":
    main()
