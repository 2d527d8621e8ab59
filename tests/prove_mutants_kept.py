"""What became of mutants, kept in a folder as it comes, so that the next proof goes on from there.

ROOM.jsonl has a line for each mutant as soon as it is judged. Of a file that is still the same, one that was noticed
stays so. One that survived is judged again by the tests whose files are others than then, and by all as soon as
anything else in the tree is another. ROOM.json says which test comes to which line; after a change of tests those of
other files are watched anew, no more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.prove_mutants_bench import SURVIVED, Bench, Mutant


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Kept:
    """Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, room: str, at: Bench) -> None:
        self._at = at
        self._lines = folder and folder / f"{room}.jsonl"
        self._cover = folder and folder / f"{room}.json"
        self._known: dict[str, dict[str, Any]] = {}
        if self._lines and self._lines.exists():
            for line in self._lines.read_text().splitlines():
                one = json.loads(line)
                self._known[one["mutant"]] = one
                at.struck[one["by"]] += 1

    def watched(self, files: Sequence[str], watch: Callable[[Sequence[str]], dict[str, Any]]) -> dict[str, Any]:
        """What a run of these files without a mutant has shown of this tree."""
        now = {file: self._at.tests.get(file, "") for file in files}
        known: dict[str, Any] = {}
        if self._cover and self._cover.exists():
            known = json.loads(self._cover.read_text())
        if known.get("tree") != self._at.digest:
            known = {"files": {}, "lines": {}, "seconds": {}, "failed": []}
        same = {file for file in files if known["files"].get(file) == now[file]}
        other = [file for file in files if file not in same]
        if not other:
            return known
        found = watch(other)
        found = {
            "tree": self._at.digest,
            "files": now,
            "lines": _together(_of(known["lines"], same), found["lines"]),
            "seconds": {t: s for t, s in known["seconds"].items() if file_of(t) in same} | found["seconds"],
            "failed": [t for t in known["failed"] if file_of(t) in same] + found["failed"],
        }
        if self._cover:
            self._cover.parent.mkdir(parents=True, exist_ok=True)
            self._cover.write_text(json.dumps(found))
        return found

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


Lines = dict[str, dict[str, list[str]]]


def _of(lines: Lines, files: Iterable[str]) -> Lines:
    return {
        file: {line: [t for t in tests if not t or file_of(t) in files] for line, tests in found.items()}
        for file, found in lines.items()
    }


def _together(one: Lines, other: Lines) -> Lines:
    return {
        file: {
            line: [*one.get(file, {}).get(line, []), *other.get(file, {}).get(line, [])]
            for line in one.get(file, {}).keys() | other.get(file, {})
        }
        for file in one.keys() | other
    }
