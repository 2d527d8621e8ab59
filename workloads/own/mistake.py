"""What is wrong with a file of an algorithm, for whoever wrote it."""

from __future__ import annotations

from topologies.graph.mistake import Mistake


class BadAlgorithm(Mistake):
    """`line`: of the file (0: no single one).  `where`: only of what shows later than the experiment is read."""

    def __init__(self, what: str, hint: str = "", line: int = 0, where: str = "") -> None:
        super().__init__(what, hint, where)
        self.line = line
