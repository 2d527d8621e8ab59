"""An experiment as an object that never changes: read, looked at, and made into others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from testbed import experiment as file
from testbed.base.errors import InputError
from testbed.experiment.overrides import changed


class Experiment:
    """What a file of an experiment says.

    `written`: the file's path; or what would be in it, as text of several lines or as a mapping. Relative paths in it
    start where the file is; in text and mappings, here. Raises InputError.
    """

    def __init__(self, written: str | Path | Mapping[str, Any]) -> None:
        with hinted():
            if isinstance(written, Mapping):
                self.model = file.loads(json.dumps(written))
            elif isinstance(written, str) and "\n" in written:
                self.model = file.loads(written)
            else:
                self.model = file.load(written)

    @classmethod
    def of(cls, what: Experiment | str | Path | Mapping[str, Any]) -> Experiment:
        """The experiment itself, or the one that is written there."""
        return what if isinstance(what, Experiment) else cls(what)

    def set(self, values: Mapping[str, Any]) -> Experiment:
        """One with other values, by key as in `--set`: `{"fabric.cable.rate": "100Gbps", "workload.0.iterations": 5}`.

        Raises InputError for a key that is not there, and for a value that does not fit.
        """
        other = object.__new__(Experiment)
        with hinted():
            told = [(key, value, f"set: {key}") for key, value in values.items()]
            other.model = changed(self.model, told, "set")
        return other

    def over(self, axes: Mapping[str, Any]) -> Experiment:
        """A sweep of it, as `sweep:` in the file: a key's values, or variants of keys that change together."""
        return self.set({"sweep": dict(axes)})

    def __getitem__(self, key: str) -> Any:
        """What holds for a key, given or by default: `experiment["fabric.cable.rate"]`. Raises KeyError."""
        value: Any = self.resolved
        for step in key.split("."):
            try:
                value = value[int(step)] if isinstance(value, list) else value[step]
            except (KeyError, IndexError, TypeError, ValueError):
                raise KeyError(f"{key}: there is no {step!r}") from None
        return value

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """All of it as plain data, every default written out."""
        return self.model.resolved()

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def points(self) -> int:
        """How many runs it is: of a sweep, all combinations."""
        from testbed.run.sweep import count

        return count(self.model)

    def __str__(self) -> str:
        """As a file, without defaults."""
        from io import StringIO

        from testbed.base.yaml_writer import dump

        text = StringIO()
        dump(self.model.written(), text)
        return text.getvalue()

    def __repr__(self) -> str:
        return f"<experiment {self.name!r}" + (f", a sweep of {self.points}>" if self.model.sweep else ">")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class hinted:
    """What to do about a mistake is printed with it: notebooks and tracebacks show notes, and no hints."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, InputError):
            return
        if error.hint:
            error.add_note(error.hint)
        for one in error.also:
            error.add_note(f"also {one.where}: {one.what}" + (f": {one.hint}" if one.hint else ""))
