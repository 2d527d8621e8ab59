"""A user's own applications, beside this controller or instead of a part of it.

An application is a file with one class written to Ryu's API (RyuApp or OSKenApp, whichever library runs).  It gets all
OpenFlow events, may send any message to any switch, and gets what Ryu does not have by
`_CONTEXTS = {"railbed": Railbed}`.  Three things are added to Ryu's API:

- Events: `SwitchReady`, when a switch has confirmed the controller's own flows; `PortChanged`, when fabricd or a switch
  says that a port went down or came up (with the virtual clock a switch sees no failed cable).
- A method `avoid(down)` of the application: ports that routes shall go around, (switch, port), besides those that are
  down.
- A method `tables(tables, down)`: every switch's flows and group tables as the controller would have them, to return
  changed.

What an application sends while it handles an event is in before the emulated clock goes on: the controller lets every
application come to the end of its events, and asks the switches to confirm, until nobody has sent anything more.  What
it sends at other times (from a thread or timer of its own) takes effect at a moment of wall time, and the run's verdict
says so.  An application that raises ends the controller, and the run with its error.
"""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial, wraps
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from controllers.flows import Flow
from controllers.openflow.compat import app_manager, event, openflow_server
from topologies.graph.fabric import Fabric
from topologies.graph.mistake import Mistake

Tables = dict[str, list[Flow]]
PortName = tuple[str, int]

_RULES = ("OFPFlowMod", "OFPGroupMod", "OFPMeterMod")  # messages that change how a switch forwards
_handling: contextvars.ContextVar[str | None] = contextvars.ContextVar("handling", default=None)


class AppError(Mistake):
    """An application that cannot be loaded or has raised: `where` it did so."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, where=where)


class SwitchReady(event.EventBase):
    """A switch, by its name in the topology, has confirmed the controller's flows."""

    def __init__(self, switch: str, datapath: Any) -> None:
        super().__init__()
        self.switch, self.datapath = switch, datapath


class PortChanged(event.EventBase):
    """A switch's port went down or came up."""

    def __init__(self, switch: str, port: int, up: bool) -> None:
        super().__init__()
        self.switch, self.port, self.up = switch, port, up


class QueueHandled(event.EventBase):
    """An event that comes after all others of an application; `done` is called when it is handled."""

    def __init__(self, done: Callable[[], None]) -> None:
        super().__init__()
        self.done = done


class Railbed:
    """The context `railbed`: the fabric as a graph, and which switch is behind a connection."""

    fabric: ClassVar[Fabric]
    dpid_base: ClassVar[int] = 0

    def switch_of(self, datapath: Any) -> str | None:
        """A connected switch's name; None if it is not of this fabric."""
        number = datapath.id - self.dpid_base
        return next((s.name for s in self.fabric.switches if s.dpid == number), None)

    def ports_to(self, switch: str, neighbour: str) -> list[int]:
        """A switch's ports with a cable to that switch or NIC."""
        ends = [(c.end(switch), c.other(switch)) for c in self.fabric.cables if switch in (c.a.node, c.b.node)]
        return sorted(own.port for own, far in ends if far.node == neighbour)


def import_app(path: Path) -> str:
    """Import an application's file.  Returns the name under which Ryu's manager loads it.  Raises AppError."""
    name = f"railbed_app_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppError("not a Python file", str(path))
    module = module_from_spec(spec)
    sys.modules[name] = module
    with _blamed_on(path):
        spec.loader.exec_module(module)
    if not (classes := _classes(module)):
        raise AppError("no application in it: a class derived from RyuApp or OSKenApp", str(path))
    if len(classes) > 1:
        raise AppError(f"{len(classes)} applications in it ({', '.join(classes)}); a file holds one", str(path))
    return name


def _classes(module: ModuleType) -> list[str]:
    base = getattr(app_manager, "OSKenApp", None) or app_manager.RyuApp
    values = vars(module).items()
    return [n for n, c in values if isinstance(c, type) and issubclass(c, base) and c.__module__ == module.__name__]


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Any error that comes out of an application becomes an AppError with the application's line."""
    try:
        yield
    except Exception as error:
        raise AppError(f"{type(error).__name__}: {error}", _line(path, error)) from error


def blame(paths: Sequence[Path], error: Exception) -> AppError | None:
    """The error as one of the application that it came from."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    path = next((path for path in paths if str(path) in files), None)
    return None if path is None else AppError(f"{type(error).__name__}: {error}", _line(path, error))


def _line(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


class Applications:
    """The user's applications that run beside the controller (`fail` ends it, `note` says something to the testbed)."""

    def __init__(self, paths: Sequence[Path], fail: Callable[[AppError], None], note: Callable[[str], None]) -> None:
        self._fail, self._note = fail, note
        self._log = logging.getLogger("railbed")
        modules = {f"railbed_app_{path.stem}": path for path in paths}
        self._apps: list[tuple[Path, Any]] = [
            (modules[brick.__module__], brick)
            for brick in app_manager.SERVICE_BRICKS.values()
            if brick.__module__ in modules
        ]
        self._sent = 0
        self._noted = False
        self._live = False
        for path, app in self._apps:
            app.register_handler(QueueHandled, lambda ev: ev.done())
            for handlers in app.event_handlers.values():
                handlers[:] = [self._guarded(path, handler) for handler in handlers]
        if self._apps:
            self._watch_sends()

    def __bool__(self) -> bool:
        return bool(self._apps)

    def live(self) -> None:
        """To be called when the fabric comes into use."""
        self._live = True

    def take_sent(self) -> int:
        """How many rules applications have sent since the last call."""
        sent, self._sent = self._sent, 0
        return sent

    def ask_when_handled(self, send: Callable[[str, Any], None], done: Callable[[str], None]) -> set[str]:
        """Ask every application to say `done`, with its name, when it has handled what it has; returns the names."""
        for _, app in self._apps:
            send(app.name, QueueHandled(partial(done, app.name)))
        return {app.name for _, app in self._apps}

    # Parts of the controller that applications may take over

    def avoid(self, down: Set[PortName]) -> frozenset[PortName]:
        """The ports that routes go around: those that are down, and those that an application wants avoided."""
        ports = frozenset(down)
        for path, app in self._apps:
            if (method := getattr(app, "avoid", None)) is not None:
                with self._failing(path):
                    ports |= frozenset((str(switch), int(port)) for switch, port in method(frozenset(down)))
        return ports

    def tables(self, tables: Tables, down: Set[PortName]) -> Tables:
        """Every switch's flows as the applications want them."""
        for path, app in self._apps:
            if (method := getattr(app, "tables", None)) is not None:
                with self._failing(path):
                    tables = _checked(method({name: list(flows) for name, flows in tables.items()}, down), tables)
        return tables

    @contextmanager
    def _failing(self, path: Path) -> Iterator[None]:
        token = _handling.set(path.name)
        try:
            with _blamed_on(path):
                yield
        except AppError as error:
            self._log.exception("application %s", path)
            self._fail(error)
        finally:
            _handling.reset(token)

    def _guarded(self, path: Path, handler: Any) -> Any:
        @wraps(handler)
        def guarded(ev: Any) -> None:
            with self._failing(path):
                handler(ev)

        return guarded

    # What they send

    def _watch_sends(self) -> None:
        datapath_class: Any = openflow_server.Datapath
        send = datapath_class.send_msg

        @wraps(send)
        def watched(datapath: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
            if type(message).__name__ in _RULES and _handling.get() != CONTROLLER:
                self._sent += 1
                if _handling.get() is None and self._live and not self._noted:
                    self._noted = True
                    self._note("an application changed flows from a thread of its own, at a moment of wall time")
            return send(datapath, message, *args, **kwargs)

        datapath_class.send_msg = watched


CONTROLLER = "the controller"


@contextmanager
def as_controller() -> Iterator[None]:
    """Messages that are sent inside count as the controller's own."""
    token = _handling.set(CONTROLLER)
    try:
        yield
    finally:
        _handling.reset(token)


def _checked(returned: Any, before: Mapping[str, Sequence[Flow]]) -> Tables:
    """What a `tables` method has returned.  Raises TypeError."""
    if not isinstance(returned, dict) or set(returned) != set(before):
        raise TypeError("tables() must return a list of flows for every switch that it was given")
    for name, flows in returned.items():
        if not all(isinstance(flow, Flow) for flow in flows):
            raise TypeError(f"tables() must return controllers.flows.Flow objects; those of {name} are not all")
    return {name: list(flows) for name, flows in returned.items()}


def find_apps(paths: Sequence[str]) -> list[Path]:
    """The files as absolute paths.  Raises AppError for one that is not there."""
    for path in paths:
        if not os.path.isfile(path):
            raise AppError("there is no such file", path)
    return [Path(path).absolute() for path in paths]
