"""Plain OpenFlow beside the controller's: a switch drops RoCE from one rank to another.

A rule of its own with a higher priority than the controller's 100.  SwitchReady comes when the switch has the
controller's rules; what is sent then is in before the fabric is used.
"""

from ryu.base import app_manager
from ryu.controller.handler import set_ev_cls
from ryu.ofproto import ofproto_v1_3

from controllers.apps import Railbed, SwitchReady

FROM, TO = 0, 1  # ranks


class Block(app_manager.RyuApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]
    _CONTEXTS = {"railbed": Railbed}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.railbed = kwargs["railbed"]

    @set_ev_cls(SwitchReady)
    def ready(self, event):
        source, target = (str(self.railbed.fabric.nics[rank].ip) for rank in (FROM, TO))
        datapath, parser = event.datapath, event.datapath.ofproto_parser
        match = parser.OFPMatch(eth_type=0x0800, ip_proto=17, udp_dst=4791, ipv4_src=source, ipv4_dst=target)
        datapath.send_msg(parser.OFPFlowMod(datapath, priority=1000, match=match, instructions=[]))
