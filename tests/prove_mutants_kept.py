"""What became of mutants, kept in a folder as it comes, so that the next proof goes on from there.

ROOM.jsonl has a line for each mutant as soon as it is judged. Of a file that is still the same, one that was noticed
stays so; one that survived is judged again as soon as anything in the tree is another, such as a test. ROOM.json says
which test comes to which line, and goes for this very tree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.prove_mutants_bench import SURVIVED, Bench, Mutant


class Kept:
    """Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, room: str, at: Bench) -> None:
        self._tree, self._at = at.digest, at
        self._lines = folder and folder / f"{room}.jsonl"
        self._cover = folder and folder / f"{room}.json"
        self._known: dict[str, dict[str, Any]] = {}
        if self._lines and self._lines.exists():
            for line in self._lines.read_text().splitlines():
                one = json.loads(line)
                self._known[one["mutant"]] = one
                at.struck[one["by"]] += 1

    def watched(self, watch: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What a run without a mutant has shown of this tree."""
        if self._cover and self._cover.exists():
            found: dict[str, Any] = json.loads(self._cover.read_text())
            if found["tree"] == self._tree:
                return found
        found = watch() | {"tree": self._tree}
        if self._cover:
            self._cover.parent.mkdir(parents=True, exist_ok=True)
            self._cover.write_text(json.dumps(found))
        return found

    def verdict(self, mutant: Mutant, judge: Callable[[], tuple[str, int] | None]) -> tuple[str, int] | None:
        """As `judge` says, or has said before. None: the compiler refuses it."""
        name = hashlib.sha256(f"{mutant.file}\n{mutant.code}".encode()).hexdigest()
        known = self._known.get(name)
        if known and (known["verdict"] != SURVIVED or known["tree"] == self._tree):
            return (known["verdict"], known["tests"]) if known["verdict"] else None
        self._at.noticed_by = ""
        verdict, tests = answer = judge() or ("", 0)
        if self._lines:
            said = {"mutant": name, "tree": self._tree, "verdict": verdict, "tests": tests, "by": self._at.noticed_by}
            place = {"at": f"{mutant.file}:{mutant.line}", "was": mutant.was, "now": mutant.now}
            with self._lines.open("a") as lines:
                lines.write(json.dumps(said | place) + "\n")
        return answer if verdict else None
