"""What the controller's library has and a controller seldom needs: not there at first, and there when asked for."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import controllers.app
from controllers.openflow.later import LazyModule

late = ["os_ken.lib.packet", "os_ken.ofproto.ofproto_v1_0_parser", "rfc3986"]
assert [type(sys.modules[name]) for name in late] == [LazyModule] * 3
assert "os_ken.lib.packet.bgp" not in sys.modules

import os_ken
assert "importlib.metadata" not in sys.modules
from importlib.metadata import version
assert os_ken.__version__ == version("os-ken") and not hasattr(os_ken, "nothing")

from controllers.openflow.compat import ofp_event
from os_ken.lib.packet import arp, packet
from ryu.lib.packet.ethernet import ethernet
from ryu.lib.packet.packet import Packet

sent = packet.Packet()
sent.add_protocol(ethernet(ethertype=0x0806))
sent.add_protocol(arp.arp(dst_ip="10.0.0.1"))
sent.serialize()
assert Packet(sent.data).get_protocol(arp.arp).dst_ip == "10.0.0.1"
assert "os_ken.lib.packet.bgp" in sys.modules

from os_ken.ofproto import ofproto_v1_0_parser
assert ofp_event.EventOFPVendor and ofproto_v1_0_parser.OFPVendor  # of OpenFlow 1.0 only
assert ofp_event.ofp_msg_to_ev_cls(ofproto_v1_0_parser.OFPVendor) is ofp_event.EventOFPVendor
for name in ("EventOFPNothing", "nothing"):
    assert not hasattr(ofp_event, name)
"""


def test_what_is_imported_later_is_all_there_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
