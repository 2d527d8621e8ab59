"""What every error says that is for a person: what is wrong, where, and what is allowed or to be done."""

from __future__ import annotations


class Mistake(Exception):
    """`where` and `hint` may be ""."""

    def __init__(self, what: str, hint: str = "", where: str = "") -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where

    def __str__(self) -> str:
        return (f"{self.where}: " if self.where else "") + self.what + (f" ({self.hint})" if self.hint else "")
