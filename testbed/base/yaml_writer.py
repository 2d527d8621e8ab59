"""Writes YAML as experiment files are written: keys in their order, plain values on one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO


def dump(data: Mapping[str, Any], file: TextIO) -> None:
    """Writes plain data."""
    from ruamel.yaml import YAML

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.sort_base_mapping_type_on_output = False
    yaml.default_flow_style = None  # lists and mappings of plain values on one line
    yaml.width = 120
    yaml.dump(data, file)
