"""Flows as OpenFlow 1.3 messages, with Open vSwitch's extensions for hashing and registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controllers.flows import (
    COOKIE_MAGIC,
    COOKIE_MAGIC_MASK,
    LINK_REGISTER,
    Action,
    AnswerArp,
    Flow,
    Group,
    Hash,
    Load,
    Output,
    Resubmit,
    Return,
    SetDscp,
)
from controllers.flows.bridge import Change
from controllers.openflow.compat import nicira_ext, ofproto

# The same flow takes the same path in every run and on every machine: everything that the hash depends on is
# given here and in the flow.
HASH_FIELDS = 3  # NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP, which ryu has no name for
HASH_ALGORITHM = nicira_ext.NX_MP_ALG_MODULO_N

ARP_REPLY = 2
MAC_PREFIX = 0x0200  # a NIC's MAC is this and the four bytes of its address
SCRATCH = "reg2"


def of_change(datapath: Any, change: Change) -> Iterator[Any]:
    """The messages that make a change, in its order."""
    if change.fresh:
        yield delete_group(datapath, None)
    yield from (add_group(datapath, group) for group in change.add_groups)
    yield from (add(datapath, flow) for flow in change.add)
    yield from (delete(datapath, cookie) for cookie in change.delete)
    yield from (delete_group(datapath, number) for number in change.delete_groups)


def add(datapath: Any, flow: Flow) -> Any:
    """Install a flow, over one with the same match if there is one."""
    parser = datapath.ofproto_parser
    actions = [a for action in flow.actions for a in _actions(parser, action)]
    return parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_ADD,
        cookie=flow.cookie,
        table_id=flow.table,
        priority=flow.priority,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
    )


def add_group(datapath: Any, group: Group) -> Any:
    """Install a group table."""
    parser = datapath.ofproto_parser
    anywhere = {"watch_port": ofproto.OFPP_ANY, "watch_group": ofproto.OFPG_ANY}
    buckets = [parser.OFPBucket(actions=[parser.OFPActionOutput(port)], **anywhere) for port in group.ports]
    return parser.OFPGroupMod(datapath, ofproto.OFPGC_ADD, ofproto.OFPGT_ALL, group.group, buckets)


def delete_group(datapath: Any, number: int | None) -> Any:
    """Remove a group table (None: all), and with it the flows that use it."""
    which = ofproto.OFPG_ALL if number is None else number
    return datapath.ofproto_parser.OFPGroupMod(datapath, ofproto.OFPGC_DELETE, ofproto.OFPGT_ALL, which, [])


def delete(datapath: Any, cookie: int) -> Any:
    """Remove the flow that has this cookie."""
    parser = datapath.ofproto_parser
    return parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_DELETE,
        cookie=cookie,
        cookie_mask=(1 << 64) - 1,
        table_id=ofproto.OFPTT_ALL,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=parser.OFPMatch(),
        instructions=[],
    )


def ask_flows(datapath: Any) -> Any:
    """Ask for all flows that this or an earlier controller has installed."""
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath,
        0,
        ofproto.OFPTT_ALL,
        ofproto.OFPP_ANY,
        ofproto.OFPG_ANY,
        COOKIE_MAGIC,
        COOKIE_MAGIC_MASK,
        datapath.ofproto_parser.OFPMatch(),
    )


def barrier(datapath: Any) -> Any:
    """Ask for a reply once everything sent before is in."""
    return datapath.ofproto_parser.OFPBarrierRequest(datapath)


def port_is_down(desc: Any) -> bool:
    """Whether a port description says that the port is down."""
    return bool(desc.state & ofproto.OFPPS_LINK_DOWN or desc.config & ofproto.OFPPC_PORT_DOWN)


def describe_error(message: Any) -> str:
    """A switch's error message as text."""
    kind = ofproto.ofp_error_type_to_str(message.type)
    return f"{kind}, {ofproto.ofp_error_code_to_str(message.type, message.code)}"


def _actions(parser: Any, action: Action) -> list[Any]:
    match action:
        case Output(port):
            return [parser.OFPActionOutput(port)]
        case Group():
            return [parser.OFPActionGroup(action.group)]
        case Return():
            return [parser.OFPActionOutput(ofproto.OFPP_IN_PORT)]
        case Hash(links, basis):
            register = f"reg{LINK_REGISTER}"
            return [
                parser.NXActionMultipath(
                    fields=HASH_FIELDS,
                    basis=basis,
                    algorithm=HASH_ALGORITHM,
                    max_link=links - 1,
                    arg=0,
                    ofs_nbits=nicira_ext.ofs_nbits(0, 31),
                    dst=register,
                )
            ]
        case Load(register_number, value):
            return [parser.NXActionRegLoad(nicira_ext.ofs_nbits(0, 31), f"reg{register_number}", value)]
        case Resubmit(table):
            return [parser.NXActionResubmitTable(in_port=ofproto.OFPP_IN_PORT & 0xFFFF, table_id=table)]
        case SetDscp(value):
            return [parser.OFPActionSetField(ip_dscp=value)]
        case AnswerArp():
            return _answer_arp(parser)


def _answer_arp(parser: Any) -> list[Any]:
    def move(source: str, destination: str, bits: int) -> Any:
        return parser.NXActionRegMove(source, destination, bits)

    def mac_prefix(field: str) -> Any:
        return parser.NXActionRegLoad(nicira_ext.ofs_nbits(32, 47), field, MAC_PREFIX)

    return [
        move("eth_src", "eth_dst", 48),
        move("arp_sha", "arp_tha", 48),
        mac_prefix("eth_src"),
        move("arp_tpa", "eth_src", 32),
        mac_prefix("arp_sha"),
        move("arp_tpa", "arp_sha", 32),
        move("arp_tpa", SCRATCH, 32),
        move("arp_spa", "arp_tpa", 32),
        move(SCRATCH, "arp_spa", 32),
        parser.OFPActionSetField(arp_op=ARP_REPLY),
        parser.OFPActionOutput(ofproto.OFPP_IN_PORT),
    ]
