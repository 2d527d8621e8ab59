"""The space that is searched: keys, and for each a span of values or a list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base import yaml_reader
from testbed.base.errors import InputError
from testbed.experiment.spans import HINT, Span, span

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_HINT = f"KEY={HINT}; or KEY=[VALUE, VALUE]"


@dataclass(frozen=True)
class Over:
    """A key (`KEY,KEY`: both have the same value), and what it may be."""

    key: str
    values: Span | list[Any]

    @property
    def keys(self) -> list[str]:
        return [one.strip() for one in self.key.split(",")]

    def distribution(self) -> BaseDistribution:
        """As Optuna has it: numbers in base units; of a list, which of its values."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if isinstance(self.values, list):
            return CategoricalDistribution(list(range(len(self.values))))
        if self.values.whole and self.values.kind is None:
            return IntDistribution(int(self.values.low), int(self.values.high), log=self.values.log)
        return FloatDistribution(self.values.low, self.values.high, log=self.values.log)

    def value(self, drawn: float) -> Any:
        """What stands in the file for what Optuna has drawn."""
        return self.values[int(drawn)] if isinstance(self.values, list) else self.values.written(drawn)

    def drawn(self, value: Any) -> float | None:
        """What Optuna would have drawn for it; None if it cannot."""
        if isinstance(self.values, list):
            return self.values.index(value) if value in self.values else None
        at = self.values.number(value)
        return int(at) if at is not None and self.values.whole and self.values.kind is None else at


def over(text: str) -> Over:
    """Reads `KEY=LOW..HIGH` or `KEY=[VALUES]`. Raises InputError."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip():
        raise InputError("this names no key and its values", f"command line: --over {text}", _HINT)
    listed = values.lstrip().startswith("[")
    return over_of(key.strip(), values_of(text, "--over")[1] if listed else values)


def over_of(key: str, values: str | list[Any]) -> Over:
    """A key with a list of values, or `LOW..HIGH`. Raises InputError."""
    if not isinstance(values, list):
        try:
            return Over(key, span(values))
        except ValueError as error:
            raise InputError(str(error), f"over {key}", _HINT) from None
    if len(values) < 2:
        raise InputError("there is nothing to choose from", f"over {key}", _HINT)
    return Over(key, values)


def values_of(text: str, option: str) -> tuple[str, list[Any]]:
    """Reads `KEY=[VALUES]`. Raises InputError."""
    key, _, values = text.partition("=")
    where = f"command line: {option} {text}"
    try:
        listed = yaml_reader.value(values)
    except yaml_reader.YamlProblem as problem:
        raise InputError(f"{values!r:.60} is no YAML list", where, problem.why) from None
    if not isinstance(listed, list) or not listed or not key.strip():
        raise InputError("this names no key and a list of its values", where, f"{option} seed=[11,12,13]")
    return key.strip(), listed


def as_it_is(space: Sequence[Over], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the experiment itself has."""
    return {one.key: _at(resolved, one.keys[0]) for one in space}


def _at(resolved: Any, key: str) -> Any:
    for step in key.split("."):
        try:
            resolved = resolved[int(step) if isinstance(resolved, list) else step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return resolved
