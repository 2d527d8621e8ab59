"""Settings of NICs and switches that do not fit each other: packets, buffers, marks, congestion control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from controllers.routing.dateline import DSCP_ACROSS
from hardware import bounds
from hardware.cc import Control, Setting
from testbed.base.units import format_rate, format_time
from testbed.checklist.finding import Case, Found, check, over_network, size, some
from testbed.plan.hardware import ecn_of
from testbed.plan.ideal import sprays
from testbed.plan.routes import has_dateline
from testbed.plan.thresholds import conflicts, narrow_pcie
from topologies.graph import frames
from topologies.kinds import DIMENSION_ORDER

if TYPE_CHECKING:
    from testbed.experiment.blocks.transport import CongestionControl

PATH_MTUS = (256, 512, 1024, 2048, 4096)
MOST_HEADERS = 0.1
SLOWER = 5.0
"""Times that a control may take longer back to the line rate than with its default parameters."""


@check("mtu", "packets are as long as RoCE has them, and mostly payload")
def mtu(case: Case) -> Found:
    payload = case.experiment.fabric.nic.mtu
    headers = frames.MOST_HEADERS + frames.OUTSIDE_BYTES
    share = headers / (payload + headers)
    where = ("fabric", "nic", "mtu")
    if payload not in PATH_MTUS:
        what = f"no RoCE NIC has a path MTU of {payload} bytes"
        yield what, where, f"one of {', '.join(map(str, PATH_MTUS))}; 4096 goes with Ethernet's 9000"
    if share > MOST_HEADERS:
        what = f"headers take {share:.0%} of a cable with {payload} bytes of payload in a packet"
        yield what, where, "mtu: 4096"


@check("PCIe", "what NICs send and receive, PCIe carries")
def pcie(case: Case) -> Found:
    for what in narrow_pcie(case.experiment):
        yield what, ("fabric", "nic", "pcie"), "a faster fabric.nic.pcie.rate, or slower cables"


@check("buffers", "PFC's thresholds and headroom, and ECN's thresholds, fit the buffers")
def buffers(case: Case) -> Found:
    switch, nic, cable = case.experiment.fabric.switch, case.experiment.fabric.nic, case.experiment.fabric.cable
    for what, hint in conflicts(case.experiment):
        yield what, ("fabric", "switch"), hint or "`testbed show experiment FILE` has all thresholds below the file"
    headroom = case.basis.needed_headroom
    needed = max(headroom(*case.basis.hardware.cable(case.fabric, c)) for c in case.fabric.cables)
    if switch.pfc and switch.lossless and switch.headroom is not None and switch.headroom < needed:
        what = (
            f"a headroom of {size(switch.headroom)} is less than what still comes in after a pause "
            f"({size(needed)} with these cables): lossless classes will lose frames"
        )
        yield what, ("fabric", "switch", "headroom"), "leave headroom out: it then follows from the cables"
    own = headroom(cable.rate, cable.delay)
    if nic.pfc and 0 < nic.rx_buffer < 2 * own:
        what = (
            f"a NIC's receive buffer of {size(nic.rx_buffer)} is less than twice the headroom of its cable "
            f"({size(own)}): it pauses too late, or all the time"
        )
        yield what, ("fabric", "nic", "rx_buffer"), f"rx_buffer: {size(2 * own)} at least"


@check("classes", "data is in a class that is lossless, or recovers from loss, and is marked")
def classes(case: Case) -> Found:
    switch = case.experiment.fabric.switch
    if switch.pfc != case.experiment.fabric.nic.pfc:
        heeding = ("switches", "NICs") if switch.pfc else ("NICs", "switches")
        what = "{} send pauses, and {} do not heed them".format(*heeding)
        yield what, ("fabric", "nic", "pfc"), "pfc: true for both, or false for both"
    for where, sending, one in case.senders:
        if sending.dscp not in switch.dscp:
            what = f"data packets have DSCP {sending.dscp}, which no class is given to: they go in class 0"
            hint = f"one of {', '.join(map(str, switch.dscp))}, or name it in fabric.switch.dscp"
            yield what, (*where, "dscp"), hint
        lossless = switch.pfc and one in switch.lossless
        if not lossless and sending.recovery == "go_back_n" and sending.cc.name == "none":
            what = f"data is in class {one}, which nothing pauses, without congestion control: full buffers drop, and "
            what += "go_back_n sends all again from there on"
            yield what, where, "a congestion control (cc), selective_repeat, or a class with PFC"
        if "marks" in sending.cc.control.hears and not _marked(case, one):
            what = f"{sending.cc.short} goes by ECN marks, and class {one} of its data is not marked"
            yield what, (*where, "cc"), f"fabric.switch.ecn: {{classes: [{one}]}}"


def _marked(case: Case, one: int) -> bool:
    ecn = case.experiment.fabric.switch.ecn
    return ecn is not None and one in ecn.classes


@check("paths", "where packets take several paths, being late is no loss, and marks are there to be heard")
def paths(case: Case) -> Found:
    spread = _switches_spread(case)
    for path, sending, one in case.senders:
        policy = sending.multipath.entry if sending.multipath else None
        where = (*path, "multipath")
        if policy and case.fabric.kind in DIMENSION_ORDER:
            yield f"a {case.fabric.kind} has one path from NIC to NIC: entropies change nothing", where, "leave it out"
            continue
        if sprays(sending) or spread:
            by = "packets take several paths"
            if not sprays(sending):
                by = "adaptive switches spread packets over several paths"
            if sending.recovery == "go_back_n":
                what = "go_back_n takes what another path brings later for lost, and sends all again from there on"
                yield f"{by}, and {what}", (*path, "recovery"), "recovery: selective_repeat, and loss: {}"
            elif sending.loss is None:
                what = "one that is overtaken counts as lost until one is seen to be late"
                hint = "loss: {}: lost is what left an idle round trip before what has come"
                yield f"{by}, and {what}", (*path, "loss"), hint
        if policy and policy.hears and not _marked(case, one):
            what = f"{policy.name} goes by ECN marks, and class {one} of the data is not marked"
            yield what, where, f"fabric.switch.ecn: {{classes: [{one}]}}"


@check("trimming", "what is sent again after it was trimmed is held back by a window, or by credit")
def trimming(case: Case) -> Found:
    switch = case.experiment.fabric.switch
    trims, across = switch.trimming, switch.dscp.get(DSCP_ACROSS, 0)
    for path, sending, one in case.senders:
        grid = case.fabric.kind in DIMENSION_ORDER and has_dateline(case.experiment)
        if trims and grid and one in trims.classes and across not in trims.classes:
            what = f"what has to cross the dateline is in class {across}, of which frames are dropped, not trimmed"
            yield what, ("fabric", "switch", "trimming"), f"classes: [{one}, {across}]"
        chosen = sending.cc
        window = chosen.control.values(case.basis.setting, chosen.values, chosen.set).get("window", 0)
        if trims and one in trims.classes and not window and "credit" not in chosen.control.hears:
            what = f"{chosen.short} has no window: it sends at once again what was trimmed, to be trimmed again"
            yield what, (*path, "cc"), "cc: nscc, or a control of credit such as ndp; or a `window` for this one"


def _switches_spread(case: Case) -> bool:
    """Whether switches let packets of a flow overtake each other."""
    adaptive = case.experiment.control.routing.adaptive
    if adaptive is None or not case.hops.chooses:
        return False
    # else what is under way has come before the next burst leaves
    return adaptive.flowlet is None or adaptive.flowlet.gap < case.basis.setting.base_rtt_ns


def _waits(case: Case) -> Iterator[str]:
    """How long senders wait, and how long they might have to."""
    waits, full = case.basis.timeout_ns, case.basis.full_path_ns
    than = "longer" if waits >= full else "shorter"
    yield f"{format_time(waits)}, {than} than packets may wait in full buffers on the longest way ({full / 1e6:.3g} ms)"


@check("timeout", "nobody sends again what is still on its way over an idle path", _waits)
def timeout(case: Case) -> Found:
    waits, idle = case.basis.timeout_ns, case.basis.setting.base_rtt_ns
    if waits < idle:
        what = f"senders wait {format_time(waits)}, and an idle path takes {format_time(round(idle))} there and back"
        yield what, ("fabric", "nic", "timeout"), "leave timeout out"


@check("congestion control", "its parameters fit the links' rate and round-trip time")
def congestion_control(case: Case) -> Found:
    chosen = {json.dumps(sender.sending.cc.model_dump()): sender for sender in reversed(case.senders)}
    for path, sending, _ in reversed(chosen.values()):
        yield from _of_control((*path, "cc"), sending.cc, case)


def _of_control(where: tuple[str | int, ...], chosen: CongestionControl, case: Case) -> Found:
    setting, ecn = case.basis.setting, case.experiment.fabric.switch.ecn
    control = chosen.control
    values = control.values(setting, chosen.values, chosen.set)
    for what, hint in (
        *_window(control.name, values, setting),
        *_delays(case, values, setting),
        *_recovery(control, values, setting),
        *(_unheard(case) if "telemetry" in control.hears else ()),
    ):
        yield what, where, hint
    if control.fills_line and ecn is not None:
        kmin, _, _ = ecn_of(ecn, case.experiment.transport, setting)
        parts, part = control.fills_line
        if kmin < setting.bdp_bytes / parts:
            what = (
                f"{control.name.upper()} keeps the line full with a threshold above {part} of the bandwidth-delay "
                f"product: {size(setting.bdp_bytes / parts)} here, and Kmin is {size(kmin)}"
            )
            yield what, ("fabric", "switch", "ecn"), "leave kmin and kmax out, or raise them"


def _window(name: str, values: dict[str, float], setting: Setting) -> Iterator[tuple[str, str]]:
    window = values.get("window", 0)
    if 0 < window < setting.bdp_bytes:
        what = (
            f"{name}'s window of {size(window)} is less than the bandwidth-delay product "
            f"({size(setting.bdp_bytes)}): one flow cannot fill the line"
        )
        yield what, "leave window out"
    if values.get("min_rate", 0) >= setting.line_rate_bps:
        yield f"{name}'s min_rate is the line rate: it never slows down", "leave min_rate out"


def _delays(case: Case, values: dict[str, float], setting: Setting) -> Iterator[tuple[str, str]]:
    """Delays aimed at, below what an idle fabric takes from a packet to its acknowledgement."""
    idle = setting.network_rtt_ns
    hops = values.get("hop_scale", 0) * bounds.most_switches(case.fabric)
    for key, more in (("t_high", 0.0), ("base_target", hops)):
        if key in values and values[key] + more < idle:
            what = f"{key} of {format_time(values[key])} is below the idle round trip ({format_time(round(idle))})"
            yield f"{what}: the rate falls without congestion", f"{key}: above that"


def _unheard(case: Case) -> Iterator[tuple[str, str]]:
    """Flows over more switches than the control hears of."""
    room = case.basis.stamps
    pairs = dict.fromkeys(pair for one in case.exchanges for pair in over_network(case, one)) if room else {}
    far = {f"{a}->{b}": n for a, b in pairs if (n := len(case.hops.between(a, b)) - 1) > room}
    if far:
        what = (
            f"packets have room to hear of {room} switches, and flows pass more: {some(far)} "
            f"({max(far.values())} switches): they do not see the queues behind"
        )
        yield what, "leave hops out: it then follows from the longest path"


def _recovery(control: Control, values: dict[str, float], setting: Setting) -> Iterator[tuple[str, str]]:
    """From half the line rate back to all of it by hyper increase."""
    if "hai" not in values:
        return
    usual = control.values(setting, {})

    def back_ms(its: dict[str, float]) -> float:
        return setting.line_rate_bps / 2 / its["hai"] * its["rate_timer"] / 1e6 if its["hai"] else float("inf")

    if back_ms(values) > SLOWER * back_ms(usual):
        rate = format_rate(int(setting.line_rate_bps))
        what = f"at {rate} these parameters take {back_ms(values):.0f} ms from half the line rate back to it, the "
        yield f"{what}default ones {back_ms(usual):.0f} ms", f"{control.name} without `set`, which scales with the rate"
