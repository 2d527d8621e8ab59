"""What is wrong with a file of an algorithm, for whoever wrote it."""

from __future__ import annotations


class BadAlgorithm(ValueError):
    """`what`, a `hint`, and the `line` of the file (0: no single one)."""

    def __init__(self, what: str, hint: str = "", line: int = 0) -> None:
        super().__init__(what)
        self.what, self.hint, self.line = what, hint, line
