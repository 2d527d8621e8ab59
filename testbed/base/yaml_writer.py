"""Writes YAML as experiment files are written: keys in their order, plain values on one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO


def dump(data: Mapping[str, Any], file: TextIO) -> None:
    import yaml

    plain_on_one_line = None
    style: dict[str, Any] = {"default_flow_style": plain_on_one_line, "width": 120}
    yaml.dump(data, file, _dumper(), sort_keys=False, allow_unicode=True, **style)


def _dumper() -> Any:
    """Quotes what would not be a string in YAML 1.2; `on` and `1e9` stand as they are."""
    import yaml

    from testbed.base.yaml_core import PlainScalars

    parent: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper

    class Dumper(parent):
        yaml_implicit_resolvers = PlainScalars.yaml_implicit_resolvers

        def represent_float(self, number: float) -> Any:
            names = {float("inf"): ".inf", float("-inf"): "-.inf"}
            text = ".nan" if number != number else names.get(number, repr(number))
            return self.represent_scalar("tag:yaml.org,2002:float", text)

    Dumper.add_representer(float, Dumper.represent_float)
    return Dumper
