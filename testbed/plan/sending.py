"""What each sender sends by: congestion control, recovery, paths and class, as fabricd takes them.

The file says it for the whole fabric, for NICs, for traffic classes, for steps, and for groups and flows of a step.
Each of these goes before those named here before it. What a NIC has, its configuration says; all other combinations
that occur are numbered, and a connection names its number (docs/fabricd-protocol.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hardware import cc, recovery
from testbed.base import controls
from testbed.experiment.basis import Basis
from testbed.experiment.blocks.transport import over
from topologies.graph import frames

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.fabric import Switch
    from testbed.experiment.blocks.transport import Own, Sending

_COMMON = {"window_bytes": 0, "min_rate_bps": 0, "hops": 0}
"""What a control may have and another not: of one that is laid over another nothing is left."""

CLASSES = 8
Numbers = int | list[int]
"""Of a transport: the same for all endpoints, or one each."""


def reorder_packets(basis: Basis, sending: Sending) -> int:
    """What NICs keep out of order: as written, or by the longest path."""
    nic, graph = basis.fabric.nic, basis.graph
    if sending.reorder_packets is not None:
        return sending.reorder_packets
    if sending.recovery != "selective_repeat":
        return recovery.LEAST
    rate = max(basis.hardware.nic_bps(graph, end.name) for end in graph.nics)
    packet_ns = max(frames.ser_ns(nic.mtu + frames.MOST_HEADERS, rate), nic.mtu * 8e9 / nic.pcie.rate)
    waiting = nic.tx_buffer / nic.mtu + nic.ack_every
    return recovery.reorder_packets(basis.setting.base_rtt_ns, packet_ns, waiting)


def selective(basis: Basis, sending: Sending) -> dict[str, Any]:
    """What becomes of packets ahead, what is said of them, and when one is lost, where the file says so."""
    sack, loss, ordering = sending.sack, sending.loss, sending.ordering
    keys: dict[str, Any] = {} if ordering == "in_order" else {"ordering": ordering}
    keys |= {"sack_bits": sack.bits, "sack_every": sack.every} if sack else {}
    if loss:
        keys |= {"loss_after_ns": loss.after or basis.setting.base_rtt_ns, "probes": loss.probe}
    return keys


def congestion_control(sending: Sending, setting: cc.Setting) -> dict[str, Any]:
    """`cc` of a NIC in this setting."""
    chosen = sending.cc
    return chosen.control.in_fabricd(chosen.control.values(setting, chosen.values, chosen.set))


def multipath_of(sending: Sending, setting: cc.Setting) -> dict[str, Any]:
    """`multipath` of a NIC in this setting; nothing where queue pairs keep one path."""
    chosen = sending.multipath
    if chosen is None:
        return {}
    policy = chosen.entry
    return {"multipath": policy.in_fabricd(chosen.entropies, policy.values(setting, chosen.values))}


def classes(switch: Switch, **dscp: int) -> dict[str, int]:
    """DSCP and class of the packets that NICs send: a NIC queues them as the switch will."""
    numbers: dict[str, int] = {}
    for what, value in dscp.items():
        numbers |= {f"{what}_dscp": value, f"{what}_class": switch.classes[value]}
    return numbers


def own_files(experiment: Experiment) -> dict[str, list[dict[str, object]]]:
    """Algorithms of users' own files, by what they are in fabricd's configuration."""
    from testbed.own import adaptive as ports
    from testbed.own import control
    from testbed.own import multipath as paths
    from testbed.own.name import parse

    senders = [sending for _, sending in experiment.senders()]
    adaptive = experiment.control.routing.adaptive
    named: dict[str, tuple[list[str], Callable[[str], dict[str, object]]]] = {
        "controls": ([its.cc.name for its in senders], control.for_fabricd),
        "multipath_policies": ([its.multipath.policy for its in senders if its.multipath], paths.for_fabricd),
        "adaptive_policies": ([adaptive.policy.name] if adaptive else [], ports.for_fabricd),
    }
    own = {key: [told(name) for name in dict.fromkeys(names) if parse(name)] for key, (names, told) in named.items()}
    return {key: files for key, files in own.items() if files}


def _words(sending: Sending, traffic_class: int | None) -> dict[str, str]:
    """Each key in a word or two."""
    selective, paths = sending.recovery == "selective_repeat", sending.multipath
    return {
        "cc": sending.cc.short + "".join(f" {key}={value:g}" for key, value in sending.cc.values.items()),
        "recovery": "selective repeat" if selective else "go-back-N",
        "ordering": "any order" if sending.ordering == "any" else "",
        "sack": f"sack {sending.sack.bits}/{sending.sack.every}" if sending.sack else "",
        "loss": "by time" if sending.loss else "",
        "multipath": f"{controls.short(paths.policy)} {paths.entropies}" if paths else "",
        "source_port": "one source port" if sending.source_port == "fixed" else "",
        "class": f"DSCP {sending.dscp}" if traffic_class is None else f"class {traffic_class}",
    }


class Senders:
    """What the senders of an experiment send by."""

    def __init__(self, experiment: Experiment, basis: Basis) -> None:
        self.transport, self.stands, self.basis = experiment.transport, experiment.stands, basis
        self.transports: list[dict[str, Any]] = []
        """Those that connections name, from 1 on."""
        self._numbers: dict[str, int] = {}
        self._found: dict[tuple[Any, ...], int] = {}

    def of_nic(self, rank: int) -> dict[str, Any] | None:
        """What a NIC's queue pairs send by, if that is not what the fabric's do."""
        own = self.transport.of_nic(rank)
        return self._in_fabricd(rank, over(self.transport, own)) if own else None

    def numbers(self, traffic_class: int | None, *own: Own | None) -> Numbers:
        """Of what is sent in a class (None: that of the DSCP), with what steps, groups and flows say."""
        if not self._several:
            return self.number(0, traffic_class, *own)
        numbers = [self.number(rank, traffic_class, *own) for rank in range(len(self.basis.graph.nics))]
        return numbers[0] if len(set(numbers)) == 1 else numbers

    def by_class(self, *own: Own | None) -> dict[str, Numbers]:
        """Traffic class, where it counts ("": all others) -> what is sent by in it; nothing: what NICs send by."""
        usual = self.numbers(None, *own)
        of_classes = {str(its): self.numbers(its, *own) for its in range(CLASSES)}
        told = {"": usual, **{its: numbers for its, numbers in of_classes.items() if numbers != usual}}
        return {} if told == {"": 0} else told

    def number(self, rank: int, traffic_class: int | None, *own: Own | None) -> int:
        """Likewise of a rank; 0: what its NIC sends by."""
        if not self.transport.classes and not any(own) and self.stands is self.transport:
            return 0
        nics = (id(its.of_nic(rank)) for its in (self.transport, self.stands))
        key = (*nics, self._rate(rank), traffic_class, *map(id, own))
        if key not in self._found:
            sending = self.sending(rank, traffic_class, *own)
            usual = sending == over(self.stands, self.stands.of_nic(rank))
            self._found[key] = 0 if usual else self._number(self._in_fabricd(rank, sending))
        return self._found[key]

    def sending(self, rank: int, traffic_class: int | None, *own: Own | None) -> Sending:
        """What a rank sends by in a class."""
        usual = over(self.transport, self.transport.of_nic(rank))
        its = traffic_class
        if its is None:
            its = self.basis.fabric.switch.classes[over(usual, *own).dscp]
        return over(usual, self.transport.classes.get(its), *own)

    def names(self, senders: Iterable[tuple[int, int | None, tuple[Own | None, ...]]]) -> list[str]:
        """What tells them from each other, each as (rank, class, what is its own); nothing if only classes differ."""
        every = list(senders)
        if not self.transport.nics and not self.transport.classes and not any(any(own) for *_, own in every):
            return []
        found = [_words(self.sending(rank, its, *own), its) for rank, its, own in every]
        differ = [key for key in found[0] if len({words[key] for words in found}) > 1] if found else []
        differ = [] if differ == ["class"] else differ
        return [", ".join(filter(None, map(words.get, differ))) or "as usual" for words in found] if differ else []

    @property
    def _several(self) -> bool:
        """Whether NICs differ."""
        return bool(self.transport.nics) or bool(self.stands.nics) or not self.basis.uniform

    def _rate(self, rank: int) -> float:
        graph = self.basis.graph
        return self.basis.hardware.nic_bps(graph, graph.nics[rank].name)

    def _number(self, transport: dict[str, Any]) -> int:
        key = json.dumps(transport, sort_keys=True)
        if key not in self._numbers:
            self.transports.append(transport)
            self._numbers[key] = len(self.transports)
        return self._numbers[key]

    def _in_fabricd(self, rank: int, sending: Sending) -> dict[str, Any]:
        """All of it, so that nothing of what it is laid over is left."""
        setting = replace(self.basis.setting, line_rate_bps=self._rate(rank))
        control = congestion_control(sending, setting)
        return {
            "recovery": sending.recovery,
            "fixed_port": sending.source_port == "fixed",
            "reorder_packets": reorder_packets(self.basis, sending),
            **{"ordering": "in_order", "sack_bits": 0, "loss_after_ns": 0, "probes": True},
            **selective(self.basis, sending),
            "cc": {**control, "params": {**_COMMON, **control["params"]}},
            **{"multipath": None, **multipath_of(sending, setting)},
            **classes(self.basis.fabric.switch, data=sending.dscp),
        }
