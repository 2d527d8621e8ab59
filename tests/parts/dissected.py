"""Captures as tshark reads them, and their bytes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


def dissect(path: Path, *fields: str) -> list[dict[str, str]]:
    """Each frame's fields, as tshark sees them."""
    command = ["tshark", "-n", "-r", str(path), "-T", "json", *(w for f in fields for w in ("-e", f))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    layers = [frame["_source"]["layers"] for frame in json.loads(done.stdout)]
    return [{field: values[0] for field, values in layer.items()} for layer in layers]


def frames_of(path: Path) -> list[bytes]:
    from scapy.utils import RawPcapNgReader

    with RawPcapNgReader(str(path)) as reader:
        return [bytes(data) for data, _ in reader]
