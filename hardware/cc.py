"""Congestion controls: one entry each, with its parameters, their defaults and the sources of these.

The experiment file is validated against these entries, fabricd is configured from them, and the tables of
docs/congestion-control.md are made from them. The controls themselves are in fabricd/cc/<name>.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hardware.bounds import STAMPS

Default = float | str | Callable[["Setting"], float]
SUFFIX = {"rate": "_bps", "time": "_ns", "size": "_bytes", "number": "", "choice": ""}


@dataclass(frozen=True)
class Setting:
    """What defaults may depend on: the NICs' line rate in bit/s, the longest path's idle round trip in ns, the MTU.

    The round trip begins with the fetch of a packet, as windows count; `fetch_ns` of it pass before the packet is on
    the cable, where measured round trips begin. `hop_ns` of it are each switch's, where all are alike. `switches` are
    on the path that has most of them. `given` is what the file says of the control's parameters. `trims`: switches trim
    data packets that they would drop.
    """

    line_rate_bps: float
    base_rtt_ns: float
    mtu: int
    fetch_ns: float = 0.0
    switches: int = 1
    hop_ns: float = 0.0
    given: Mapping[str, float] = field(default_factory=dict)
    trims: bool = False

    @property
    def bdp_bytes(self) -> float:
        return self.line_rate_bps / 8 * self.base_rtt_ns * 1e-9

    @property
    def network_rtt_ns(self) -> float:
        """The idle round trip as it is measured."""
        return self.base_rtt_ns - self.fetch_ns

    @property
    def network_bdp_bytes(self) -> float:
        return self.line_rate_bps / 8 * self.network_rtt_ns * 1e-9

    @property
    def target_queue_ns(self) -> float:
        """NSCC's: a round trip, or three quarters where switches trim (initNsccParams of uec.cpp)."""
        return self.given.get("target_queue", self.network_rtt_ns * (0.75 if self.trims else 1))


@dataclass(frozen=True)
class Parameter:
    """`kind` is rate (bit/s), time (ns), size (bytes), number, or choice: one of `choices`, by its place there."""

    name: str
    kind: str
    default: Default
    about: str
    least: float = 0.0
    most: float = 1e15
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in fabricd's configuration."""
        return self.name + SUFFIX[self.kind]

    def value(self, setting: Setting, default: Default) -> float:
        """The default's value in this setting."""
        if isinstance(default, str):
            return float(self.choices.index(default))
        return float(default(setting) if callable(default) else default)


@dataclass(frozen=True)
class Parametrized:
    """An algorithm of NICs. `sets` are named sets of its parameters; the first is the default one.

    `marks` are Kmin, Kmax and Pmax of switches where the experiment leaves them open, if its source has its own.
    """

    name: str
    summary: str
    source: str
    parameters: tuple[Parameter, ...] = ()
    sets: Mapping[str, Mapping[str, Default]] = field(default_factory=dict)
    marks: Callable[[Setting], tuple[int, int, float]] | None = None

    @property
    def by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    def values(self, setting: Setting, given: Mapping[str, float], named_set: str | None = None) -> dict[str, float]:
        """Every parameter's value: what is given, else what the named set says, else the default."""
        setting = replace(setting, given=given)
        chosen = dict(self.sets[named_set or next(iter(self.sets))]) if self.sets else {}
        values = {}
        for p in self.parameters:
            default = chosen.get(p.name, p.default)
            values[p.name] = float(given[p.name]) if p.name in given else p.value(setting, default)
        return values

    def keyed(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values by their keys in fabricd's configuration."""
        return {self.by_name[name].key: value for name, value in values.items()}


@dataclass(frozen=True)
class Control(Parametrized):
    """A congestion control.

    `hears` is what its rate or window follows: `marks` of ECN, `delay`, `telemetry` of switches, `losses`.
    With a Kmin below `fills_line` of the bandwidth-delay product (one part of so many, in words) the line runs empty.
    """

    hears: tuple[str, ...] = ()
    fills_line: tuple[int, str] | None = None

    def in_fabricd(self, values: Mapping[str, float]) -> dict[str, object]:
        """`cc` of a NIC in fabricd's configuration."""
        return {"algorithm": self.name, "params": self.keyed(values)}

    def stamps(self, given: Mapping[str, float], switches: int) -> int:
        """Of so many switches on the longest path those that a packet has room to hear of."""
        hops = self.by_name["hops"]
        return int(given.get("hops", hops.value(Setting(0, 0, 0, switches=switches), hops.default)))


def _scaled(mbps_at_25g: float) -> Callable[[Setting], float]:
    return lambda s: mbps_at_25g * 1e6 * s.line_rate_bps / 25e9


def _uec(s: Setting) -> float:
    """UEC's scaling factor a: the bandwidth-delay product, against that of 100 Gb/s and 12 us."""
    return s.network_bdp_bytes / 150_000


_DCTCP_PARTS = 7


def _dctcp_marks(s: Setting) -> tuple[int, int, float]:
    """One threshold: 3 KB for each Gb/s; the line is full above a seventh of the bandwidth-delay product."""
    threshold = math.ceil(max(3000 * s.line_rate_bps / 1e9, s.bdp_bytes / _DCTCP_PARTS))
    return threshold, threshold, 1.0


def _uec_marks(s: Setting) -> tuple[int, int, float]:
    """htsim's main_uec.cpp: a fifth and four fifths of the bandwidth-delay product, all three in whole packets."""
    packets = math.ceil(s.network_bdp_bytes / s.mtu)
    return math.ceil(packets * 0.2) * s.mtu, math.ceil(packets * 0.8) * s.mtu, 1.0


_MIN_RATE = Parameter("min_rate", "rate", 100e6, "the rate never goes below", least=1e6)
_BASE_RTT = Parameter("base_rtt", "time", lambda s: s.base_rtt_ns, "round-trip time of the idle fabric (longest path)")
_WINDOW = Parameter("window", "size", lambda s: 2 * s.bdp_bytes + 32 * s.mtu, "bytes under way at most", least=1)
_FIXED_WINDOW = Parameter("window", "size", 0, "bytes under way at most (0: no limit)")
_BETA = Parameter("beta", "number", 0.8, "strength of the decrease", most=1.0)
_SPOKEN_FOR = Parameter("window", "size", lambda s: 1.5 * s.bdp_bytes, "bytes granted and not sent at most", least=1)
_GRANT = Parameter("grant_packets", "number", 1, "a credit has so many packets at most", least=1, most=1024)
_CREDIT = (
    Parameter("initial", "size", lambda s: s.bdp_bytes, "bytes sent before there is any credit", least=0),
    _GRANT,
    Parameter("pull_share", "number", 0.99, "of the receiver's cable that is granted", least=0.01, most=2.0),
    Parameter(
        "ask_again",
        "time",
        lambda s: max(100e3, 10 * s.base_rtt_ns),
        "without credit for so long a sender asks; then after twice that",
        least=1e3,
    ),
)
_RCCC = (replace(_CREDIT[0], default=lambda s: 1.5 * s.bdp_bytes), replace(_CREDIT[1], default=4), *_CREDIT[2:])
_MAX_DECREASE = Parameter("max_decrease", "number", 0.5, "largest decrease in one round trip", most=1.0)

_NSCC = (
    replace(_BASE_RTT, default=lambda s: s.network_rtt_ns,
            about="round-trip time of the idle fabric (longest path), from the cable on"),
    Parameter("hop_rtt", "time", lambda s: s.hop_ns, "a path takes so much less for each switch below"),
    Parameter("switches", "number", lambda s: s.switches, "these, the longest path's", most=255),
    replace(_WINDOW, default=lambda s: 1.5 * s.bdp_bytes), _BETA, _MAX_DECREASE,
    Parameter("target_queue", "time", lambda s: s.target_queue_ns, "queueing delay aimed at", least=1),
    Parameter("ewma", "number", 0.0125, "weight of a new delay in the average", most=1.0),
    Parameter("proportional_packets", "number", lambda s: 4 * _uec(s) * s.target_queue_ns / 12e3,
              "increase a round trip without delay", most=1e6),
    Parameter("ai_packets", "number", lambda s: 5 * _uec(s), "fair increase a round trip", most=1e6),
    Parameter("period_packets", "number", lambda s: 0.15 * _uec(s), "and so much each base_rtt", most=1e6),
    Parameter("fast", "number", lambda s: 0.25 * _uec(s), "a byte, after a window without delay", most=1e3),
    Parameter("quick_adapt", "time", lambda s: 4 * s.target_queue_ns, "delay that cuts the window at once"),
)  # fmt: skip

CONTROLS: dict[str, Control] = {
    c.name: c
    for c in (
        Control("none", "line rate; held back by PFC and loss, and a window if it is given one", "", (_FIXED_WINDOW,)),
        Control(
            "dcqcn",
            "rate control by congestion notifications (CNPs)",
            "Zhu et al., SIGCOMM 2015",
            (
                _MIN_RATE,
                Parameter("ai", "rate", 40e6, "additive increase"),
                Parameter("hai", "rate", 200e6, "hyper increase"),
                Parameter("g", "number", 1 / 256, "weight of a notification in alpha", most=1.0),
                Parameter("alpha_timer", "time", 55e3, "without a notification for so long alpha shrinks", least=1),
                Parameter("rate_timer", "time", 55e3, "an increase so often", least=1),
                Parameter("byte_counter", "size", 10e6, "and one each so many bytes sent (0: off)"),
                Parameter("fast_recovery", "number", 5, "increases that halve the gap to the target first", most=100),
                Parameter("decrease_gap", "time", 0, "between two cuts at least; with `armed` their ticks"),
                Parameter("first_cut", "choice", "immediate", "a notification cuts at once, or arms the next tick",
                          choices=("immediate", "armed")),
                Parameter("clamp_target", "choice", "always", "when a cut takes the current rate as the target",
                          choices=("always", "after_timer", "after_bytes")),
                Parameter("cnp_gap", "time", 50e3, "between two notifications of one flow at least"),
                _FIXED_WINDOW,
            ),
            {
                "hpcc": {
                    "min_rate": lambda s: min(1e9, s.line_rate_bps / 100), "ai": _scaled(5), "hai": _scaled(50),
                    "alpha_timer": 1e3, "rate_timer": 300e3, "byte_counter": 0, "fast_recovery": 1,
                    "decrease_gap": 4e3, "first_cut": "armed", "clamp_target": "after_timer", "cnp_gap": 1e3,
                },
                "scaled": {
                    "ai": lambda s: s.line_rate_bps / 1000, "hai": lambda s: s.line_rate_bps / 200,
                    "byte_counter": lambda s: 10e6 * s.line_rate_bps / 40e9,
                },
                "paper": {},
                "ns3_rdma": {"rate_timer": 60e3, "byte_counter": 300_000, "clamp_target": "after_bytes"},
                "simai": {"ai": 50e6, "hai": 100e6, "rate_timer": 900e3, "alpha_timer": 1e3, "byte_counter": 0,
                          "fast_recovery": 1, "decrease_gap": 4e3, "first_cut": "armed", "clamp_target": "after_timer",
                          "cnp_gap": 1e3},
                "connectx5": {"min_rate": 1e6, "ai": 5e6, "hai": 50e6, "g": 5 / 1024, "rate_timer": 300e3,
                              "alpha_timer": 1e3, "byte_counter": 32767, "fast_recovery": 1, "decrease_gap": 4e3,
                              "first_cut": "armed", "clamp_target": "after_timer", "cnp_gap": 2e3},
            },
            hears=("marks",),
        ),
        Control(
            "dctcp",
            "a window by the share of marked packets",
            "RFC 8257; Alizadeh et al., SIGCOMM 2010",
            (
                _BASE_RTT, _WINDOW,
                Parameter("g", "number", 1 / 16, "weight of a round trip in alpha", most=1.0),
                Parameter("ai_packets", "number", 1, "additive increase a round trip, in packets", most=1000),
            ),
            hears=("marks", "losses"), marks=_dctcp_marks, fills_line=(_DCTCP_PARTS, "a seventh"),
        ),
        Control(
            "timely",
            "rate control by the gradient of the round-trip time",
            "Mittal et al., SIGCOMM 2015",
            (
                _MIN_RATE, _BETA,
                Parameter("ai", "rate", _scaled(25), "additive increase a round trip"),
                Parameter("ewma", "number", 0.875, "weight of a new difference", most=1.0),
                Parameter("t_low", "time", 50e3, "below this round-trip time the rate always grows"),
                Parameter("t_high", "time", lambda s: max(500e3, 2 * s.network_rtt_ns), "above this it always shrinks"),
                Parameter("min_rtt", "time", lambda s: max(20e3, s.network_rtt_ns),
                          "what the gradient is measured against", least=1),
                Parameter("hai_after", "number", 5, "negative gradients in a row make it five times `ai`", most=1e6),
                _MAX_DECREASE, _FIXED_WINDOW,
            ),
            hears=("delay",),
        ),
        Control(
            "swift",
            "a window by delay against a target",
            "Kumar et al., SIGCOMM 2020",
            (
                _BASE_RTT, _WINDOW, _BETA, _MAX_DECREASE,
                Parameter("min_window", "number", 0.01, "least window in packets: below 1 it is a rate", least=1e-4),
                Parameter("base_target", "time", lambda s: 20e3 + s.network_rtt_ns - s.hop_ns * s.switches,
                          "delay aimed at, without switches: 20 us, and what is idle on the way"),
                Parameter("hop_scale", "time", lambda s: 1e3 + s.hop_ns,
                          "and so much more for each switch on the way: 1 us, and what is idle there"),
                Parameter("flow_range", "time", 40e3, "most that a small window adds to the target"),
                Parameter("flow_min_window", "number", 0.1, "window in packets where it adds that", least=1e-3),
                Parameter("flow_max_window", "number", 100, "and where it adds nothing", least=1e-3),
                Parameter("ai_packets", "number", 1, "additive increase a round trip, in packets", most=1000),
            ),
            hears=("delay", "losses"),
        ),
        Control(
            "hpcc",
            "a window by in-band telemetry of the switches",
            "Li et al., SIGCOMM 2019",
            (
                replace(_MIN_RATE, default=lambda s: min(100e6, s.line_rate_bps / 1000)), _BASE_RTT, _WINDOW,
                Parameter("eta", "number", 0.95, "utilization aimed at", least=0.1, most=1.0),
                Parameter("max_stage", "number", 5, "additive steps between two multiplicative ones", most=100),
                Parameter("ai", "rate", _scaled(50), "additive increase: so much x base_rtt goes into the window"),
                Parameter("hops", "number", lambda s: max(s.switches, STAMPS),
                          f"switches that a packet has room to hear of (longest path, {STAMPS} at least)",
                          least=1, most=63),
            ),
            hears=("telemetry",),
        ),
        Control(
            "nscc",
            "a window by queueing delay and ECN (Ultra Ethernet)",
            "UEC 1.0, 3.6.13, as in htsim's uec.cpp",
            _NSCC, hears=("marks", "delay", "losses"), marks=_uec_marks,
        ),
        Control(
            "rccc",
            "receivers let senders send, in turn (Ultra Ethernet)",
            "UEC 1.0, 3.6.14, as in htsim's uec.cpp",
            (_SPOKEN_FOR, *_RCCC), hears=("credit",),
        ),
        Control(
            "uec",
            "`nscc` and `rccc` together: a packet goes if both let it",
            "UEC 1.0, 3.6, as in htsim's uec.cpp",
            (*_NSCC, *_RCCC), hears=("marks", "delay", "losses", "credit"), marks=_uec_marks,
        ),
        Control(
            "eqds",
            "receivers let senders send, in turn, and first those of whom something was trimmed",
            "Olteanu et al., NSDI 2022, as in htsim's eqds.cpp",
            (_SPOKEN_FOR, *_CREDIT), hears=("credit",),
        ),
        Control(
            "ndp",
            "a pull for each packet that comes",
            "Handley et al., SIGCOMM 2017",
            (replace(_SPOKEN_FOR, default=lambda s: s.bdp_bytes), *_CREDIT), hears=("credit",),
        ),
        Control(
            "homa",
            "the message that has least left goes first",
            "Montazeri et al., SIGCOMM 2018",
            (
                replace(_SPOKEN_FOR, default=lambda s: s.bdp_bytes), *_CREDIT,
                Parameter("overcommit", "number", 2, "messages that are granted at a time (0: all)", most=1e6),
            ),
            hears=("credit",),
        ),
    )
}  # fmt: skip


def own(
    name: str, summary: str, source: str, parameters: tuple[Parameter, ...], hears: tuple[str, ...],
    marks: Callable[[Setting], tuple[int, int, float]] | None,
) -> Control:  # fmt: skip
    """A control of a user's own. Those parameters that fabricd minds itself it has in any case."""
    common = [_WINDOW, _MIN_RATE, *([CONTROLS["hpcc"].by_name["hops"]] if "telemetry" in hears else [])]
    if "credit" in hears:
        common += [*_CREDIT, replace(CONTROLS["homa"].by_name["overcommit"], default=0)]
    named = {p.name for p in parameters}
    return Control(
        name, summary, source, (*parameters, *(p for p in common if p.name not in named)), hears=hears, marks=marks
    )
