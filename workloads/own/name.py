"""What an experiment calls an algorithm of a user's own: `FILE.xml` (MSCCL's) or `FILE.py:FUNCTION`.

An experiment as resolved says `/PATH/FILE.py:FUNCTION#sha256:..`: the algorithm is that file with that content.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

FORM = "FILE.xml or FILE.py:FUNCTION"
PATTERN = r"(.+\.xml|.+\.py:[A-Za-z_][A-Za-z0-9_]*)(#sha256:[0-9a-f]{64})?"
_NAME = re.compile(PATTERN)
_NO_FUNCTION = re.compile(r"[^:]*\.py")


class Name(NamedTuple):
    """`digest`: of what must be in the file; "" where nothing is said.  Of Python `function` may be left out."""

    path: str
    function: str
    digest: str

    @property
    def short(self) -> str:
        """For tables: the same wherever the file is."""
        return os.path.basename(self.path) + (f":{self.function}" if self.function else "")

    def __str__(self) -> str:
        function = f":{self.function}" if self.function else ""
        return f"{self.path}{function}{f'#sha256:{self.digest}' if self.digest else ''}"


def parse(text: str) -> Name | None:
    """None: that is no file's."""
    if _NO_FUNCTION.fullmatch(text):
        return Name(text, "", "")
    if not (found := _NAME.fullmatch(text)):
        return None
    path, _, function = (found[1], "", "") if found[1].endswith(".xml") else found[1].rpartition(":")
    return Name(path, function, (found[2] or "").removeprefix("#sha256:"))
