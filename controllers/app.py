"""The OpenFlow application: keeps the flows of every switch of one fabric as its routes have them.

Proactive: a switch gets all its flows when it connects, nothing is ever learnt from frames.  When fabricd or a switch
reports a port that went down, the routes change, and only the difference is sent.  Runs on os-ken and on ryu; all of
this happens in the application's one event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

from controllers.apps import Applications, PortChanged, SwitchReady, as_controller
from controllers.fabricd import SUBSCRIBE, FabricdLink
from controllers.flows.bridge import Bridge, Change
from controllers.flows.faults import FaultError, refusals
from controllers.offload.jobs import JobRefused, Placement
from controllers.openflow import messages
from controllers.openflow.compat import App, event, handler, hub, ofp_event, ofproto
from controllers.openflow.revalidation import NotPurged, purge
from controllers.operator import OPERATE, RESYNC, about
from controllers.report import fail, fail_app, say
from controllers.routing.ports import DownPorts
from controllers.routing.routes import Router
from controllers.wanted import Wanted
from topologies.graph.fabric import Fabric

CONFIG, MAIN, DEAD = handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER


@dataclass(frozen=True)
class Settings:
    """The controller's settings.  A switch's datapath id is `dpid_base` | its own in the fabric."""

    fabric: Fabric
    router: Router
    dpid_base: int
    fabricd: str | None  # fabricd's control socket
    ovs: Path  # ovs-vswitchd's control socket
    apps: tuple[Path, ...] = ()  # files of the user's own applications, loaded before this one


class FromFabricd(event.EventBase):
    """Messages that fabricd sent."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        super().__init__()
        self.messages = messages


class AppDone(event.EventBase):
    """An application has handled all its events."""

    def __init__(self, app: str) -> None:
        super().__init__()
        self.app = app


def _on(events: Any, *states: str) -> Callable[[Callable[[Any, Any], None]], Any]:
    """Handle an event.  An exception ends the controller, with a message: that is better than wrong flows."""

    def decorate(function: Callable[[Any, Any], None]) -> Any:
        @wraps(function)
        def guarded(self: Any, ev: Any) -> None:
            try:
                with as_controller():
                    function(self, ev)
            except Exception as error:
                self.log.exception("in %s", function.__name__)
                fail(f"internal error in {function.__name__}: {error!r}")

        return handler.set_ev_cls(events, list(states) or None)(guarded)

    return decorate


class Controller(App):
    """Programs the switches of one fabric (see Settings)."""

    OFP_VERSIONS: ClassVar = [ofproto.OFP_VERSION]
    _EVENTS: ClassVar = [SwitchReady, PortChanged]

    def __init__(self, *args: Any, settings: Settings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log = logging.getLogger("railbed")
        self.fabric = settings.fabric
        self.ovs = settings.ovs
        self.ports = DownPorts()
        self.bridges = {s.name: Bridge(s.name) for s in self.fabric.switches}
        self.datapaths: dict[str, Any] = {}  # by switch name
        self.names = {settings.dpid_base | s.dpid: s.name for s in self.fabric.switches}
        self.found: dict[str, list[int]] = {}  # cookies of flows that a new switch lists
        self.unsettled: list[Any] = []  # ids of fabricd's events that wait for switches
        self.pending_ends: list[Mapping[str, Any]] = []  # events of a cable's first port, before that of its second
        self.link = FabricdLink(settings.fabricd, self._from_fabricd, self.log) if settings.fabricd else None
        self.subscribed = self.link is None
        self.announced = False
        self.placed: dict[int, Placement] = {}  # what fabricd's events are to be answered with
        self.apps = Applications(settings.apps, fail_app, lambda text: say({"note": text}))
        self.ready: set[str] = set()  # switches that the applications know to be ready
        self.busy: set[str] = set()  # applications that are at something
        self.apps_due = bool(self.apps)  # they may have something to do before it is settled
        self.wanted = Wanted(self.fabric, settings.router, self.ports, self.apps)
        for name, flows in self.wanted.without_faults().items():
            self.bridges[name].wanted = frozenset(flows)

    def start(self) -> Any:
        super().start()
        if self.link is not None:
            hub.spawn(self.link.run)

    # Switches come and go

    @_on(ofp_event.EventOFPStateChange, MAIN, DEAD)
    def state_changed(self, ev: Any) -> None:
        datapath = ev.datapath
        name = self.names.get(datapath.id)
        if name is None:
            if ev.state == MAIN:
                self.log.warning("switch %016x is none of this fabric; ignored", datapath.id)
        elif ev.state == MAIN:
            self.log.info("%s: connected", name)
            self._note("info", f"{name}: connected")
            self.datapaths[name] = datapath
            self.bridges[name].connected()
            self.found[name] = []
            datapath.send_msg(messages.ask_flows(datapath))
        elif self.datapaths.get(name) is datapath:
            self.log.warning("%s: connection lost; it keeps its flows", name)
            self._note("warning", f"{name}: connection lost; it keeps its flows")
            del self.datapaths[name]
            self.bridges[name].lost()
            self.ready.discard(name)

    @_on(ofp_event.EventOFPFlowStatsReply, MAIN)
    def flows_listed(self, ev: Any) -> None:
        if (name := self._name(ev.msg.datapath)) is None or name not in self.found:
            return
        self.found[name] += [entry.cookie for entry in ev.msg.body]
        if not ev.msg.flags & ofproto.OFPMPF_REPLY_MORE:
            if self.found[name]:
                self._purge()  # what was counted by now is the flows' as they are now
            self._send(name, self.bridges[name].found(self.found.pop(name)))

    @_on(ofp_event.EventOFPBarrierReply, MAIN)
    def barrier_seen(self, ev: Any) -> None:
        if (name := self._name(ev.msg.datapath)) is not None:
            self.bridges[name].barrier_seen(ev.msg.xid)
            if self.apps and self.bridges[name].settled and name not in self.ready:
                self.ready.add(name)
                self.send_event_to_observers(SwitchReady(name, ev.msg.datapath))
            self._settle()

    @_on(ofp_event.EventOFPErrorMsg, CONFIG, MAIN)
    def error(self, ev: Any) -> None:
        if (name := self._name(ev.msg.datapath)) is None:
            return
        what = f"{name} refused a message: {messages.describe_error(ev.msg)}"
        self.bridges[name].refused = what
        self.log.error(what)
        self._note("error", what)
        if not self.announced:
            fail(what)

    # Ports go down and come up

    @_on(ofp_event.EventOFPPortDescStatsReply, CONFIG, MAIN)
    def ports_listed(self, ev: Any) -> None:
        if (name := self.names.get(ev.msg.datapath.id)) is not None:
            down = {p.port_no for p in ev.msg.body if messages.port_is_down(p)}
            self.ports.switch_lists(name, {number for number in down if self._is_port(name, number)})
            self._reroute(f"{name} connected", "the switch")

    @_on(ofp_event.EventOFPPortStatus, MAIN)
    def port_status(self, ev: Any) -> None:
        name, port = self._name(ev.msg.datapath), ev.msg.desc.port_no
        if name is not None and self._is_port(name, port):
            up = ev.msg.reason != ofproto.OFPPR_DELETE and not messages.port_is_down(ev.msg.desc)
            self.ports.switch_says((name, port), up)
            self._tell_apps([(name, port, up)])
            self._reroute(f"{name}:{port} {'up' if up else 'down'}", "the switch")

    @_on(FromFabricd)
    def fabricd_says(self, ev: Any) -> None:
        for message in ev.messages:
            if message.get("event") == "act":
                self._act(message)
                self.unsettled.append(message["id"])
            elif message.get("event") in ("job", "job_closed"):
                self._job(message)
                self.unsettled.append(message["id"])
            elif message.get("event") == "port":
                self._port(message)
            elif message.get("event") == "rate":
                self._rate(message)
            elif message.get("event") == "ping" and self.link is not None:
                self.link.pong()
            elif message.get("ok") is False and message.get("id") != SUBSCRIBE:
                self.log.error("fabricd refused a request: %s", message.get("error"))
            elif message.get("id") == SUBSCRIBE and "ok" in message:
                self.subscribed, self.pending_ends = bool(message["ok"]), []
                if not self.subscribed:
                    self.log.error("fabricd refused the subscription: %s", message.get("error"))
        self.apps_due = bool(self.apps)
        self._settle()

    def _port(self, message: Mapping[str, Any]) -> None:
        """A port goes up or down; both ends of a cable are one change, however their messages come in."""
        self.pending_ends.append(message)
        if message["more"]:
            return
        changed, self.pending_ends = self.pending_ends, []
        self.unsettled += [one["id"] for one in changed]
        ends = [(one["switch"], one["port"], one["up"]) for one in changed if self._is_port(one["switch"], one["port"])]
        for name, port, up in ends:
            self.ports.fabricd_says((name, port), up)
        if ends:
            self._tell_apps(ends)
            what = ", ".join(f"{name}:{port} {'up' if up else 'down'}" for name, port, up in ends)
            self._reroute(what, "fabricd")

    def _rate(self, message: Mapping[str, Any]) -> None:
        """A cable has come up at another rate: what ports weigh follows.  Both its ends say so, in a row."""
        self.unsettled.append(message["id"])
        name, port = message["switch"], message["port"]
        if message["more"] or not self._is_port(name, port):
            return
        cable = self.fabric.cable_at[name, port]
        self.wanted.set_rate(cable, message["rate_bps"])
        what = f"{cable.name} at {message['rate_bps'] / 1e9:g} Gb/s"
        switches, added, deleted = self._follow(f"{what}, says fabricd")
        if switches:
            self._note(
                "info", f"{what}: ports weigh anew, {switches} switches changed, {added} flows in, {deleted} out"
            )

    def _act(self, message: Mapping[str, Any]) -> None:
        """A forwarding fault goes on or off, or something that an operator asks for.

        A controller knows nothing of faults, and so its log does not either: fabricd's has them.
        """
        fault, on, before = message["fault"], message["on"], dict(self.wanted.faults)
        if OPERATE in message["spec"]:
            self._operate(fault, message["spec"], on)
            return
        if on:
            self.wanted.faults[fault] = message["spec"]
        else:
            self.wanted.faults.pop(fault, None)
        try:
            if refused := refusals(self.fabric, self.wanted.without_faults(), message["spec"]) if on else "":
                self._note("error", refused)
            self._follow()
        except (FaultError, KeyError, IndexError, TypeError) as error:
            self.wanted.faults = before
            self.log.error("fault %s cannot be put in: %r", fault, error)

    def _operate(self, name: str, spec: Mapping[str, Any], on: bool) -> None:
        self.wanted.operator.set(name, spec, on)
        self.wanted.reroute()
        self._move_jobs()
        self._follow(f"operator {name} {'on' if on else 'off'}")
        resync, switch = spec[OPERATE] == RESYNC, spec.get("switch")
        if on or not resync:
            self._note("info", f"operator: {about(spec)}" + ("" if on else ": taken back"))
        if on and resync and switch in self.datapaths:  # as when it connects
            self.bridges[switch].connected()
            self.found[switch] = []
            self.datapaths[switch].send_msg(messages.ask_flows(self.datapaths[switch]))

    def _job(self, message: Mapping[str, Any]) -> None:
        """Ranks want a collective offloaded, or no longer."""
        number = message["job"]
        if message["event"] == "job_closed":
            if self.wanted.close(number):
                self._follow(f"job {number} closed")
            return
        try:
            placement = self.wanted.place(message)
            self._follow(f"job {number} ({message['kind']} of {len(message['ranks'])} ranks)")
        except JobRefused as refused:
            self.log.info("job %s refused: %s", number, refused)
            placement = Placement(answer={"refused": str(refused)})
        if not message.get("granted"):
            self.placed[message["id"]] = placement

    # The user's applications

    def _tell_apps(self, changed: list[tuple[str, int, bool]]) -> None:
        if self.apps:
            self._purge()  # as in _follow: they may send flows of their own
            for name, port, up in changed:
                self.send_event_to_observers(PortChanged(name, port, up))

    @_on(AppDone)
    def app_done(self, ev: Any) -> None:
        self.busy.discard(ev.app)
        if not self.busy and self.apps.take_sent():  # what they sent is to be confirmed, and may have consequences
            self.apps_due = True
            for name in self.datapaths:
                self._send_barrier(name)
        self._settle()

    def _apps_have_settled(self) -> bool:
        """Whether no application has anything left to do; asks them if this is not known."""
        if self.apps_due and not self.busy:
            self.apps_due = False
            self.busy = self.apps.ask_when_handled(
                self.send_event, lambda name: self.send_event(self.name, AppDone(name))
            )
            self.log.info("waiting for the applications %s", ", ".join(sorted(self.busy)))
        return not self.busy and not self.apps_due

    # Flows follow

    def _reroute(self, why: str, says: str) -> None:
        """Work out the routes for the ports that are up, and send the difference."""
        if self.wanted.reroute():
            self._move_jobs()
            switches, added, deleted = self._follow(f"{why}, says {says}")
            self._note("info", f"{why}: rerouted, {switches} switches changed, {added} flows in, {deleted} out")

    def _move_jobs(self) -> None:
        """Tell fabricd of jobs that have to ask anew, to be placed on other switches."""
        for number, why in self.wanted.moved.items():
            self.log.info("job %s is to ask anew: %s", number, why)
            if self.link is not None:
                self.link.moved(number, why)
        self.wanted.moved.clear()

    def _note(self, level: str, text: str) -> None:
        """What an operator may read, once the fabric is up: what comes before is in no order that repeats."""
        if self.link is not None and self.announced:
            self.link.note(level, text)

    def _follow(self, why: str = "") -> list[int]:
        """Work out the switches' flows from routes and faults, and send the difference.  Raises FaultError.

        Without `why` it stands in no log. Returns how many switches changed, and how many flows went in and out.
        """
        began = time.perf_counter()
        sent = [0, 0, 0]
        for name, flows in self.wanted.tables().items():
            bridge = self.bridges[name]
            bridge.wanted = frozenset(flows)
            if change := bridge.change():
                if self.announced and not sent[0]:
                    self._purge()  # what was counted by now is the flows' as they are now
                self._send(name, change)
                sent = [sent[0] + 1, sent[1] + len(change.add), sent[2] + len(change.delete)]
        duration_ms = (time.perf_counter() - began) * 1000
        if why:
            self.log.info("%s: %d switches changed, %d flows in, %d out, %.1f ms", why, *sent, duration_ms)
        return sent

    def _send(self, name: str, change: Change) -> None:
        datapath = self.datapaths[name]
        for message in messages.of_change(datapath, change):
            datapath.send_msg(message)
        self._send_barrier(name)

    def _send_barrier(self, name: str) -> None:
        datapath = self.datapaths[name]
        barrier = messages.barrier(datapath)
        datapath.set_xid(barrier)
        self.bridges[name].barrier_sent(barrier.xid)
        datapath.send_msg(barrier)

    def _settle(self) -> None:
        """If every switch has confirmed its flows, answer the events that wait for it."""
        if not all(bridge.settled for bridge in self.bridges.values()) or not self._apps_have_settled():
            return
        if not self.announced and self.subscribed:
            self.announced = True
            self.apps.live()
            flows = sum(len(bridge.wanted) for bridge in self.bridges.values())
            self.log.info("%d switches programmed with %d flows", len(self.bridges), flows)
            say({"programmed": len(self.bridges), "flows": flows})
        if not self.unsettled:
            return
        unconfirmed = self._purge()
        for waiting in self.unsettled:
            if self.link is not None:
                self.link.settled(waiting, self.placed.pop(waiting, None), unconfirmed)
        self.unsettled.clear()

    def _purge(self) -> str:
        """Has the switches empty their caches; returns why that is not certain, if it is not."""
        try:
            purge(self.ovs)
        except NotPurged as error:
            self.log.warning("old rules may still be in force: %s", error)
            return str(error)
        return ""

    def _from_fabricd(self, messages: list[dict[str, Any]]) -> None:
        self.send_event(self.name, FromFabricd(messages))

    def _name(self, datapath: Any) -> str | None:
        """The switch behind a connection, unless a newer connection has taken its place."""
        name = self.names.get(datapath.id)
        return name if name is not None and self.datapaths.get(name) is datapath else None

    def _is_port(self, name: str, port: int) -> bool:
        return (name, port) in self.fabric.cable_at
