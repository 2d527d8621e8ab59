"""NCCL's own picture of a server (`NCCL_TOPO_DUMP_FILE`): GPUs, NICs, PCIe, NVLink.  No entity is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pyexpat import ExpatError, ParserCreate
from typing import Any, NoReturn

from testbed.base.errors import InputError

MOST_ELEMENTS = 100_000
MOST_DEPTH = 32
_GTPS = {"2.5": 2.0, "5.0": 4.0, "8.0": 7.877, "16.0": 15.754, "32.0": 31.508, "64.0": 60.5}
"""Gb/s of a PCIe lane by its transfer rate: 8b/10b, then 128b/130b, then FLITs."""
_NVLINK_GBPS = {60: 160, 61: 160, 70: 200, 80: 200, 90: 200, 100: 400}
"""Of a link in one direction by `sm` (NVIDIA's data sheets: 20, 25, 25, 25 and 50 GB/s)."""


@dataclass
class Server:
    """What a server has.  Rates are in bit/s; None where the file does not say."""

    gpus: int = 0
    sm: int | None = None
    nics: list[tuple[str, float]] = field(default_factory=list)
    scale_up_bps: float | None = None
    pcie_bps: float | None = None  # the slowest of the NICs'
    gdr: bool = True
    collnet: bool = False
    vendor: str = ""
    arch: str = ""


@dataclass
class _State:
    server: Server = field(default_factory=Server)
    pci: list[float] = field(default_factory=list)
    nvlinks: int = 0
    in_gpu: bool = False
    most_nvlinks: int = 0
    elements: int = 0
    depth: int = 0


def read(raw: bytes, file: str) -> Server:
    """Raises InputError for what is no such file, or declares a document type."""
    parser = ParserCreate()
    state = _State()

    def wrong(what: str, hint: str = "") -> NoReturn:
        raise InputError(what, f"{file}:{parser.CurrentLineNumber}", hint)

    def start(name: str, attributes: dict[str, str]) -> None:
        state.elements, state.depth = state.elements + 1, state.depth + 1
        if state.elements > MOST_ELEMENTS or state.depth > MOST_DEPTH:
            wrong("this is larger or deeper than any server")
        if state.depth == 1 and name != "system":
            wrong(f"<{name[:40]}> is not NCCL's topology", "of NCCL_TOPO_DUMP_FILE=FILE: it begins with <system>")
        _element(state, name, attributes)

    def end(name: str) -> None:
        state.depth -= 1
        if name == "pci":
            state.pci.pop()
        elif name == "gpu":
            state.most_nvlinks, state.nvlinks = max(state.most_nvlinks, state.nvlinks), 0

    def refused(*_: object) -> Any:
        wrong("it declares a document type, and could name entities there", "leave <!DOCTYPE ..> out")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refused
    try:
        parser.Parse(raw, True)
    except (LookupError, ValueError) as error:
        raise InputError(f"its encoding is not known: {error}", file) from None
    except ExpatError as error:
        raise InputError(f"it is no XML: {str(error).partition(':')[0]}", f"{file}:{error.lineno}") from None
    server = state.server
    if not server.gpus:
        raise InputError("there is no GPU in it", file, "NCCL_TOPO_DUMP_FILE=FILE of a process that has GPUs")
    if state.most_nvlinks and server.sm is not None and (each := _NVLINK_GBPS.get(server.sm)):
        server.scale_up_bps = state.most_nvlinks * each * 1e9
    return server


def _element(state: _State, name: str, attributes: dict[str, str]) -> None:
    server = state.server
    if name == "cpu":
        server.vendor = server.vendor or attributes.get("vendor", "")[:40]
        server.arch = server.arch or attributes.get("arch", "")[:40]
    elif name == "pci":
        speed = attributes.get("link_speed", "").split(" ")[0]
        lanes = _whole(attributes.get("link_width", ""))
        rate = _GTPS.get(speed if "." in speed else f"{speed}.0", 0.0) * (lanes or 0) * 1e9
        state.pci.append(min(filter(None, (rate, *state.pci)), default=0.0))
    elif name == "gpu":
        server.gpus += 1
        server.sm = _whole(attributes.get("sm", "")) or server.sm
    elif name == "nvlink":
        state.nvlinks += _whole(attributes.get("count", "")) or 0
    elif name == "net":
        mbps = _whole(attributes.get("speed", "")) or 0
        server.nics.append((attributes.get("name", "")[:40], mbps * 1e6))
        server.gdr = server.gdr and attributes.get("gdr", "1") == "1"
        server.collnet = server.collnet or attributes.get("coll", "0") == "1"
        if state.pci and state.pci[-1]:
            server.pcie_bps = min(server.pcie_bps or state.pci[-1], state.pci[-1])


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
