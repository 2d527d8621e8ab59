"""Imports parts of os-ken that a controller seldom needs only on use, which halves the start-up time.

os-ken imports every version of OpenFlow, every packet format, and TLS.  Ours speaks 1.3 (and understands the greeting
of a switch that also speaks 1.5); an application that takes packets apart gets what it asks for at that moment.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_PACKETS = "os_ken.lib.packet"
_VERSIONS = [f"os_ken.ofproto.ofproto_v1_{minor}_parser" for minor in (0, 2, 4, 5)]
_OTHERS = [
    "rfc3986",
    "stevedore",
    "ssl",
]  # the first two of oslo.config: for URIs and drivers, which os-ken has none of
_NEWEST = 6  # OpenFlow 1.5 on the wire
_HELLO = 0


class LazyModule(ModuleType):
    """Stands for a module, which is imported when one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks
            raise AttributeError(name)
        return getattr(_now(self.__name__), name)


def _now(name: str) -> ModuleType:
    """The module itself, and its package before it."""
    for known in (name.rpartition(".")[0], name):
        if isinstance(sys.modules.get(known), LazyModule):
            del sys.modules[known]
    return importlib.import_module(name)


class _NotAsked:
    """Stands for pbr's VersionInfo."""

    def __init__(self, package: str) -> None:
        self.package = package

    def version_string(self) -> str:
        return ""


def _without_version() -> None:
    """Imports os-ken's top package without its version: reading the packages' metadata takes longer than OpenFlow."""
    pbr: Any = ModuleType("pbr")
    pbr.version = ModuleType("pbr.version")
    pbr.version.VersionInfo = _NotAsked
    stand_ins = {"pbr": pbr, "pbr.version": pbr.version}
    if "os_ken" in sys.modules or stand_ins.keys() & sys.modules.keys():
        return
    sys.modules.update(stand_ins)
    try:
        library: Any = importlib.import_module("os_ken")
    finally:
        for name in stand_ins:
            del sys.modules[name]
    del library.__version__

    def version(name: str) -> Any:
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("os-ken")
        raise AttributeError(f"module 'os_ken' has no attribute {name!r}")

    library.__getattr__ = version


def put_off() -> None:
    """To be called before anything of os-ken is imported."""
    _without_version()
    for name in (*_VERSIONS, *_OTHERS):
        sys.modules.setdefault(name, LazyModule(name))
    library: Any = importlib.import_module("os_ken.lib")
    packets: Any = LazyModule(_PACKETS)
    packets.__path__ = [f"{folder}/packet" for folder in library.__path__]  # its modules can be imported alone
    packets.packet = LazyModule(f"{_PACKETS}.packet")
    sys.modules.setdefault(_PACKETS, packets)


def complete(ofp_event: Any) -> None:
    """Events of messages that only other versions of OpenFlow have are made when an application names one."""

    def event_of(name: str) -> Any:
        if name.startswith("EventOFP"):
            for version in _VERSIONS:
                ofp_event._create_ofp_msg_ev_from_module(_now(version))
            if name in vars(ofp_event):
                return vars(ofp_event)[name]
        raise AttributeError(f"module {ofp_event.__name__!r} has no attribute {name!r}")

    ofp_event.__getattr__ = event_of


def understand_greetings(ofproto_parser: Any, ours: Any) -> None:
    """A switch greets in the newest version that it speaks; what it says then is laid out alike in all of them."""

    def parse(datapath: Any, version: int, message: int, *rest: Any) -> Any:
        module = ours if message == _HELLO else _now(_VERSIONS[-1])
        return module.msg_parser(datapath, version, message, *rest)

    ofproto_parser._MSG_PARSERS.setdefault(_NEWEST, parse)
