"""One OpenFlow library under one name: os-ken where it is installed, else ryu 4.34.

Both have the same API; os-ken renamed the package and the application's base class.  An application may import either
name, whichever library runs.  This must be imported before anything else of the library is.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

LIBRARY = "os_ken" if find_spec("os_ken") else "ryu"

if LIBRARY == "os_ken":
    # Threads, whatever the environment says, so that the event loop is the same on every machine.
    os.environ["OSKEN_HUB_TYPE"] = "native"
else:
    import eventlet.wsgi

    # ryu 4.34 imports a name that eventlet dropped later; it only compares it with the answers of web handlers.
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()


def _module(name: str) -> Any:
    return importlib.import_module(f"{LIBRARY}.{name}")


if LIBRARY == "os_ken":
    from controllers.openflow import later

    later.put_off()


hub: Any = _module("lib.hub")
if LIBRARY == "ryu":
    hub.patch()  # sockets and queues yield to the other green threads

app_manager: Any = _module("base.app_manager")
cfg: Any = _module("cfg")
event: Any = _module("controller.event")
handler: Any = _module("controller.handler")
ofp_event: Any = _module("controller.ofp_event")
if LIBRARY == "os_ken":
    later.complete(ofp_event)
    later.understand_greetings(_module("ofproto.ofproto_parser"), _module("ofproto.ofproto_v1_3_parser"))
openflow_server: Any = _module("controller.controller")  # registers the listening options
ofproto: Any = _module("ofproto.ofproto_v1_3")
nicira_ext: Any = _module("ofproto.nicira_ext")

if LIBRARY == "os_ken":
    # os-ken 4.2.2 with threads never tells that a switch is gone: it waits first for the connection's sending thread,
    # which waits for something to send.
    def _telling(receive: Any) -> Any:
        @functools.wraps(receive)
        def receive_and_tell(datapath: Any) -> None:
            try:
                receive(datapath)
            finally:
                datapath.send(b"", close_socket=True)  # ends the sending thread

        return receive_and_tell

    openflow_server.Datapath._recv_loop = _telling(openflow_server.Datapath._recv_loop)

App: Any = app_manager.OSKenApp if LIBRARY == "os_ken" else app_manager.RyuApp

OTHER = "ryu" if LIBRARY == "os_ken" else "os_ken"


class _OtherName:
    """Imports of the other library's modules give this one's. importlib.abc has bases for it, and takes long."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        loader: Any = self
        return ModuleSpec(name, loader) if name == OTHER or name.startswith(f"{OTHER}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(LIBRARY + name.removeprefix(OTHER))


_finder: Any = _OtherName()
sys.meta_path.insert(0, _finder)
app_manager.RyuApp = app_manager.OSKenApp = App
