"""The thresholds of an experiment's switches and NICs, by port, as they follow from its keys.

They are read from fabricd's configuration, so they are those in force. The dynamic threshold depends on what else is in
the buffer (docs/buffers.md). Two extremes are shown: one lossless group alone, and all groups equally full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.units import format_rate, format_time
from testbed.experiment.basis import Basis
from testbed.plan.hardware import hardware_of
from topologies.graph import frames

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from topologies import Fabric

MOST_NAMES = 3


@dataclass(frozen=True)
class Buffer:
    """A switch's buffer, split as fabricd splits it."""

    shared: float  # what is left for everybody
    alpha: float
    reserve: int
    groups: int  # lossless ones: ports x classes

    @classmethod
    def of(cls, switch: Mapping[str, Any]) -> Buffer:
        ports = len(switch["taps"])
        headroom = switch["headroom_bytes"]
        aside = sum(headroom) if isinstance(headroom, list) else ports * headroom
        classes = len(switch["lossless"])
        left = switch["buffer_bytes"] - classes * (ports * switch["reserve_bytes"] + aside)
        return cls(left, int(switch["alpha"] * 1024 + 0.5) / 1024, switch["reserve_bytes"], ports * classes)

    def threshold(self, groups: int, reserve: int = 0, below: int = 0) -> int:
        """Bytes in each of so many equally full groups, with its reserve, when it is `below` the threshold."""
        return reserve + max(int((self.alpha * self.shared - below) / (1 + groups * self.alpha)), 0)

    def feeders(self, queue: int, most: int) -> int | None:
        """How many ports must feed a queue equally for it to grow beyond so many bytes before they are paused."""
        return next((k for k in range(1, most + 1) if k * self.threshold(k, self.reserve) > queue), None)


def rows(experiment: Experiment) -> list[dict[str, Any]]:
    """Thresholds of switches' ports: one row for those that are alike in all, sizes in bytes."""
    graph, config = configured(experiment)
    found: dict[tuple[Any, ...], dict[str, list[int]]] = {}
    cables = {tuple(end): c for c in config["cables"] for end in (c["a"], c["b"])}
    for switch in config["switches"]:
        buffer = Buffer.of(switch)
        for port in range(1, len(switch["taps"]) + 1):
            cable = cables.get((switch["name"], port))
            there = "accelerator" if cable is None else _far_end(graph, switch["name"], cable)
            of = (cable["rate_bps"], cable["delay_ns"]) if cable else (None, None)
            alike = (there, *of, *_of_port(switch, buffer, port))
            found.setdefault(alike, {}).setdefault(switch["name"], []).append(port)
    return [_row(key, ports) for key, ports in found.items()]


def nic_rows(experiment: Experiment) -> list[dict[str, Any]]:
    """As `rows`, for NICs' receive buffers."""
    _, config = configured(experiment)
    found: dict[tuple[int, int, int], list[str]] = {}
    for nic in config["nics"]:
        key = (nic["rx_buffer_bytes"], nic["rx_xoff_bytes"], nic["rx_xon_bytes"])
        found.setdefault(key, []).append(nic["name"])
    return [
        {"nics": names_of(names), "rx_buffer": buffer, "xoff": xoff, "xon": xon}
        for (buffer, xoff, xon), names in found.items()
    ]


def marking(experiment: Experiment) -> list[dict[str, Any]]:
    """Where ECN begins and ends, by switch, port and class."""
    _, config = configured(experiment)
    return [
        {
            "node": switch["name"],
            "port": port,
            "priority": int(one),
            **{k: ecn[k] for k in ("kmin_bytes", "kmax_bytes")},
        }
        for switch in config["switches"]
        for port in range(1, len(switch["taps"]) + 1)
        for one, ecn in _ecn(switch, port).items()
    ]


def warnings(experiment: Experiment) -> Iterator[str]:
    """Everything that a run's notes say before it begins: of two parts, one takes away what the other was asked for."""
    for what, hint in conflicts(experiment):
        yield f"{what}: {hint}" if hint else what
    yield from narrow_pcie(experiment)
    yield from unheard(experiment)


def narrow_pcie(experiment: Experiment) -> Iterator[str]:
    """Of NICs with one port whose PCIe carries less than their cable: what is left of the cable."""
    basis = Basis(experiment)
    nic, graph, line = basis.fabric.nic, basis.graph, basis.fabric.cable.rate
    if not basis.uniform:
        cables = [graph.cable_at[one.name, 1] for one in graph.nics]
        line = max((int(basis.cable(c)[0]) for c in cables if c.name not in graph.inside), default=0)
    if nic.pcie.rate < line * nic.mtu / (nic.mtu + frames.MOST_HEADERS + frames.OUTSIDE_BYTES):
        carried = format_rate(int(nic.pcie.rate))
        yield f"PCIe carries {carried} of payload, and a cable {format_rate(int(line))}: no NIC sends or receives more"


def unheard(experiment: Experiment) -> Iterator[str]:
    """Of a control that hears of switches' queues: paths that are longer than it hears of."""
    basis = Basis(experiment)
    if 0 < basis.stamps < basis.switches:
        yield (
            f"{basis.transport.cc.short} hears of the first {basis.stamps} switches of a path, and the longest has "
            f"{basis.switches}: flows do not see the queues that they cause behind those"
        )


def conflicts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Of thresholds: what, and a hint or ""."""
    _, config = configured(experiment)
    said: dict[tuple[str, str], list[str]] = {}
    for switch in config["switches"]:
        buffer = Buffer.of(switch)
        if buffer.shared <= 0:
            aside, whole = int(switch["buffer_bytes"] - buffer.shared), switch["buffer_bytes"]
            of = f"headroom and reserve of {len(switch['taps'])} ports are {_size(aside)} together"
            text = f"{of}, the buffer has {_size(whole)}"
            said.setdefault((text, "enlarge fabric.switch.buffer"), []).append(switch["name"])
            continue
        for text in _ecn_above(switch, buffer):
            said.setdefault((text, ""), []).append(switch["name"])
    for (text, hint), switches in said.items():
        yield f"{names_of(switches)}: {text}", hint


def _ecn_above(switch: Mapping[str, Any], buffer: Buffer) -> Iterator[str]:
    """A warning for each Kmin that is above the point where PFC pauses or, for a lossy class, frames are dropped."""
    ports = len(switch["taps"])
    found: dict[tuple[bool, int], dict[str, set[int]]] = {}
    for port in range(1, ports + 1):
        for one, ecn in _ecn(switch, port).items():
            key = int(one) in switch["lossless"], int(ecn["kmin_bytes"])
            at = found.setdefault(key, {"classes": set(), "ports": set()})
            at["classes"].add(int(one))
            at["ports"].add(port)
    for (lossless, kmin), at in found.items():
        most = buffer.threshold(1, buffer.reserve if lossless else 0)
        if kmin < most:
            continue
        classes, numbers = (_ranges(sorted(at[what])) for what in ("classes", "ports"))
        begins = f"queues of class {classes} at port {numbers} are marked from {_size(kmin)} on"
        if not lossless:
            yield f"ECN lies above the end of the queue: {begins}, and hold {_size(most)} at most"
            continue
        enough = buffer.feeders(kmin, ports - 1)
        when = f"ECN comes first only where {enough} ports or more feed a queue" if enough else "PFC always comes first"
        yield f"ECN lies above PFC: {begins}, but whoever has brought {_size(most)} is paused; {when}"


def configured(experiment: Experiment) -> tuple[Fabric, dict[str, Any]]:
    """Its fabric, and fabricd's configuration of it."""
    from hardware.config import fabricd_config

    graph = experiment.build_fabric()
    return graph, fabricd_config(graph, hardware_of(experiment), fabric_id="", clock={"mode": "virtual"})


def _far_end(graph: Fabric, switch: str, cable: Mapping[str, Any]) -> str:
    if cable["name"] in graph.inside:
        return "inside"
    if cable["name"] in graph.to_hosts and cable["b"][0] == switch:
        return "host"
    return "uplink"


def _ecn(switch: Mapping[str, Any], port: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = switch["port_ecn"][port - 1] if "port_ecn" in switch else switch["ecn"]
    return found


def _of_port(switch: Mapping[str, Any], buffer: Buffer, port: int) -> tuple[Any, ...]:
    headroom = switch["headroom_bytes"]
    pauses = bool(switch["lossless"]) and buffer.shared > 0
    xoff = [buffer.threshold(groups, buffer.reserve) if pauses else None for groups in (1, buffer.groups)]
    xon = buffer.threshold(1, buffer.reserve, switch["xon_offset_bytes"]) if pauses else None
    ecn = next(iter(_ecn(switch, port).values()), None)
    marks = (ecn["kmin_bytes"], ecn["kmax_bytes"], ecn["pmax"]) if ecn else (None, None, None)
    own = headroom[port - 1] if isinstance(headroom, list) else headroom
    return (own if switch["lossless"] else None, *xoff, xon, *marks)


_COLUMNS = ("to", "rate", "delay", "headroom", "xoff_alone", "xoff_all", "xon_alone", "kmin", "kmax", "pmax")


def _row(key: Sequence[Any], ports: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    by_ports: dict[str, list[str]] = {}
    for name, numbers in ports.items():
        by_ports.setdefault(_ranges(numbers), []).append(name)
    where = [f"{names_of(names)}:{numbers}" for numbers, names in by_ports.items()]
    row = {"ports": names_of(where, " "), **dict(zip(_COLUMNS, key, strict=True))}
    row["rate"] = None if row["rate"] is None else format_rate(int(row["rate"]))
    row["delay"] = None if row["delay"] is None else format_time(row["delay"])
    return row


def _ranges(numbers: Sequence[int]) -> str:
    """1-4,7"""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], n]
        else:
            parts.append([n])
    return ",".join("-".join(map(str, part)) for part in parts)


def names_of(names: Sequence[str], between: str = ",") -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES + 1 else ""
    return between.join(names[:MOST_NAMES] if more else names) + more


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with sizes as people read them."""
    return {key: _size(value) if isinstance(value, int) else value for key, value in row.items()}


def _size(count: int) -> str:
    """217.4 KB"""
    return f"{count / 1e6:.4g} MB" if count >= 1e6 else f"{count / 1e3:.4g} KB"
