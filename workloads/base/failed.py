"""A step that cannot be done, for a reason that a person is told: what is wrong, and what to do."""

from __future__ import annotations


class Failed(Exception):
    """`hint` may be empty."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint
