"""Round trips, and programs of which SmartNICs may do a part."""

from __future__ import annotations

from workloads.entries import collectives as c
from workloads.entries.kinds import ALONE, FED, MESSAGE, PAIR, STORAGE, others

PROGRAMS = (
    others(
        c.PING_PONG, "write", "parts.ping_pong:WritePingPong", "times.messages:ping_pong_write_ns",
        "by RDMA write with immediate", anywhere=True, **PAIR, **ALONE,
    ),
    others(
        c.PING_PONG, "send", "parts.ping_pong:SendPingPong", "times.messages:ping_pong_send_ns",
        "by send and receive", anywhere=True, **PAIR, **ALONE,
    ),
    others(
        c.RPC, "host", "programs.rpc:ByHosts", "programs.closed_form:rpc_by_hosts_ns",
        "host cores serialize and make objects", **MESSAGE, **ALONE,
    ),
    others(
        c.RPC, "nic", "programs.rpc:ByNics", "programs.closed_form:rpc_by_nics_ns",
        "compute complexes of the NICs do (RpcNIC)", on_complexes=True, helped_by="workloads.programs.roles:everybody",
        **MESSAGE, **ALONE,
    ),
    others(
        c.BLOCK_WRITE, "host", "programs.storage:Write", "programs.closed_form:block_write_by_hosts_ns",
        "the middle tier's cores look at headers, compress and send", **STORAGE, **ALONE,
    ),
    others(
        c.BLOCK_WRITE, "nic", "programs.storage:Write", "programs.closed_form:block_write_by_nics_ns",
        "its host looks at headers, its NIC does the rest (SmartDS)", on_complexes=True,
        helped_by="workloads.programs.roles:first", **STORAGE, **ALONE,
    ),
    others(
        c.FEED, "host", "programs.feed:Feed", "programs.closed_form:feed_by_hosts_ns",
        "the core that preprocesses copies, posts and keeps the books", **FED, **ALONE,
    ),
    others(
        c.FEED, "nic", "programs.feed:Feed", "programs.closed_form:feed_by_nics_ns",
        "complexes of the servers' NICs do that (Conspirator)", on_complexes=True,
        helped_by="workloads.programs.roles:feeders", **FED, **ALONE,
    ),
)  # fmt: skip
