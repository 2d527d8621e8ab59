"""Drains a spine, or a rail's uplinks, as soon as one of its cables fails: no more traffic through it than must be.

A spine with one cable gone still carries what the others bring.  An operator who wants to replace it takes all transit
traffic off first; so does this: every port of the switch is avoided while any of them is down.
"""

from ryu.base import app_manager
from ryu.controller.handler import set_ev_cls

from controllers.apps import PortChanged, Railbed

DRAINED = "spine0"


class Drain(app_manager.RyuApp):
    _CONTEXTS = {"railbed": Railbed}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.railbed = kwargs["railbed"]

    def avoid(self, down):
        cables = [c for c in self.railbed.fabric.cables if DRAINED in (c.a.node, c.b.node)]
        failed = any((end.node, end.port) in down for c in cables for end in (c.a, c.b))
        return {(end.node, end.port) for c in cables for end in (c.a, c.b) if end.node == DRAINED} if failed else set()

    @set_ev_cls(PortChanged)
    def port_changed(self, event):
        self.logger.info("%s:%d is %s", event.switch, event.port, "up" if event.up else "down")
