"""What the controller's library has and a controller seldom needs: not there at first, and there when asked for."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import controllers.app
from controllers.openflow.later import LazyModule

versions = [f"os_ken.ofproto.ofproto_v1_{minor}_parser" for minor in (0, 5)]
late = ["os_ken.lib.packet", *versions, "rfc3986", "ssl"]
assert [type(sys.modules[name]) for name in late] == [LazyModule] * 5
assert not {"_ssl", "importlib.abc", "os_ken.lib.packet.bgp"} & set(sys.modules)

from os_ken.ofproto import ofproto_parser
hello = bytes.fromhex("0600001000000007 00010008 00000040")  # OpenFlow 1.5.1, 7.5.1: I speak 1.5, which is version 6
greeting = ofproto_parser.msg(None, 6, 0, 16, 7, hello)
assert [element.versions for element in greeting.elements] == [[6]] and greeting.xid == 7
assert type(sys.modules["os_ken.ofproto.ofproto_v1_5_parser"]) is LazyModule
error = ofproto_parser.msg(None, 6, 1, 12, 8, bytes.fromhex("0601000c00000008 00010002"))
assert (type(error).__module__, error.type, error.code) == ("os_ken.ofproto.ofproto_v1_5_parser", 1, 2)

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
