"""What an experiment calls an algorithm of a user's own: `FILE.xml` (MSCCL's) or `FILE.py:FUNCTION`.

An experiment as resolved says `/PATH/FILE.py:FUNCTION#sha256:..`: the algorithm is that file with that content.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FORM = "FILE.xml or FILE.py:FUNCTION"
_NAME = re.compile(r"(?P<path>.+\.(?:xml|py))(?::(?P<function>[A-Za-z_]\w*))?(?:#sha256:(?P<digest>[0-9a-f]{64}))?")


class Name(NamedTuple):
    """`digest`: of what must be in the file; "" where nothing is said."""

    path: str
    function: str
    digest: str

    @property
    def short(self) -> str:
        """For tables: the same wherever the file is."""
        return Path(self.path).name + (f":{self.function}" if self.function else "")

    def __str__(self) -> str:
        function = f":{self.function}" if self.function else ""
        return f"{self.path}{function}{f'#sha256:{self.digest}' if self.digest else ''}"


def parse(text: str) -> Name | None:
    """None: that is no file's."""
    if not (found := _NAME.fullmatch(text)) or found["path"].endswith(".xml") == bool(found["function"]):
        return None
    return Name(found["path"], found["function"] or "", found["digest"] or "")
