"""What became of mutants, kept in a folder as it comes, so that the next proof goes on from there.

ROOM.jsonl has a line for each mutant as soon as it is judged. Of a file that is still the same, one that was noticed
stays so. One that survived is judged again by the tests whose files are others than then, and by all as soon as
anything else in the tree is another. python.json and c.json say which test comes to which line of all rooms; of tests
only those are watched that are another or were not watched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.prove_mutants_bench import SURVIVED, Bench, Mutant


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Kept:
    """Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, room: str, at: Bench) -> None:
        self._at, self._folder = at, folder
        self._lines = folder and folder / f"{room}.jsonl"
        self._known: dict[str, dict[str, Any]] = {}
        if self._lines and self._lines.exists():
            for line in self._lines.read_text().splitlines():
                one = json.loads(line)
                self._known[one["mutant"]] = one
                at.struck[one["by"]] += 1

    def watched(
        self, language: str, files: Sequence[str], watch: Callable[[Sequence[str]], dict[str, Any]]
    ) -> dict[str, Any]:
        """What a run of these files without a mutant has shown of this tree."""
        path = self._folder and self._folder / f"{language}.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
        if known.get("tree") != self._at.digest:
            known = {"tree": self._at.digest, "files": {}, "lines": {}, "seconds": {}, "failed": []}
        now = {file: self._at.tests.get(file, "") for file in {*files, *known["files"]}}
        known = _of(known, {file for file, digest in known["files"].items() if digest == now[file]})
        if other := [file for file in files if file not in known["files"]]:
            known = _together(known, watch(other) | {"files": {file: now[file] for file in other}})
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(known))
        return _of(known, set(files))

    def verdict(self, mutant: Mutant, tests: Sequence[str], judge: Callable[[Sequence[str]], str]) -> tuple[str, int]:
        """As `judge` says of tests, or has said before, and how many ran. "": the compiler refuses it."""
        name = hashlib.sha256(f"{mutant.file}\n{mutant.code}".encode()).hexdigest()
        known = self._known.get(name)
        if known and known["verdict"] != SURVIVED:
            return known["verdict"], known["tests"]
        ran = set(known["ran"]) if known and known["tree"] == self._at.digest else set()
        left = [test for test in tests if self._named(test) not in ran]
        if ran and not left:
            return SURVIVED, len(tests)
        self._at.noticed_by = ""
        verdict = judge(left)
        ran |= {self._named(test) for test in left} if verdict == SURVIVED else set()
        said = {"mutant": name, "verdict": verdict, "tests": len(tests), "by": self._at.noticed_by}
        place = {"at": f"{mutant.file}:{mutant.line}", "was": mutant.was, "now": mutant.now}
        if self._lines:
            with self._lines.open("a") as lines:
                lines.write(json.dumps(said | place | {"tree": self._at.digest, "ran": sorted(ran)}) + "\n")
        return verdict, len(left)

    def _named(self, test: str) -> str:
        """With its file's digest."""
        return f"{test} {self._at.tests.get(file_of(test), '')[:12]}"


def _of(known: dict[str, Any], files: set[str]) -> dict[str, Any]:
    """What the tests of some files have shown; a line's test without a name is what imports it."""
    return known | {
        "files": {file: digest for file, digest in known["files"].items() if file in files},
        "lines": {
            code: {line: [t for t in tests if not t or file_of(t) in files] for line, tests in lines.items()}
            for code, lines in known["lines"].items()
        },
        "seconds": {test: s for test, s in known["seconds"].items() if file_of(test) in files},
        "failed": [test for test in known["failed"] if file_of(test) in files],
    }


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    lines = {}
    for code in one["lines"].keys() | other["lines"]:
        a, b = one["lines"].get(code, {}), other["lines"].get(code, {})
        lines[code] = {line: [*a.get(line, []), *b.get(line, [])] for line in a.keys() | b}
    return {
        "tree": one["tree"],
        "files": one["files"] | other["files"],
        "lines": lines,
        "seconds": one["seconds"] | other["seconds"],
        "failed": one["failed"] + other["failed"],
    }
