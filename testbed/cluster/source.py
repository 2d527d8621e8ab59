"""A file that a profile follows from; and what may stand where a profile is named."""

from __future__ import annotations

from pydantic import Field

from testbed.base.types import Model

FILE_OR_MAPPING = {"anyOf": [{"type": kind} for kind in ("string", "object", "null")]}
"""JSON schema of a key that names a profile, or is one."""


class SourceOf(Model):
    file: str = Field(max_length=255, description="name of a log, without its folder")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of its content")
    rows: int = Field(ge=0, description="rows that were read from it")
