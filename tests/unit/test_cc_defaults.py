"""What congestion controls take for their parameters where a file leaves them open."""

from __future__ import annotations

import json
import math

import pytest

from hardware import cc
from testbed.experiment import Experiment, loads
from testbed.experiment.basis import Basis
from testbed.plan.hardware import ecn_of, hardware_of, written_control
from testbed.plan.thresholds import warnings
from tests.pages import congestion_control
from tests.parts.control_case import Case

RATES = (25, 100, 200, 400, 800)


def values(case: Case) -> dict[str, float]:
    control = case.experiment.transport.cc
    return cc.CONTROLS[control.name].values(case.setting, control.values, control.set)


def marks(case: Case) -> tuple[int, int, float]:
    ecn = case.experiment.fabric.switch.ecn
    assert ecn is not None
    return ecn_of(ecn, case.experiment.transport, case.setting)


def star(text: str = "") -> Experiment:
    return loads(f"name: a\nfabric: {{topology: {{star: {{hosts: 2}}}}}}\n{text}")


def test_the_page_shows_what_a_default_file_gives() -> None:
    plain = star()
    setting = Basis(plain).setting
    assert setting == congestion_control.EXAMPLE


@pytest.mark.parametrize("control", [name for name in cc.CONTROLS if name != "none"])
@pytest.mark.parametrize("gbps", RATES)
def test_no_default_depends_on_how_often_is_acknowledged(control: str, gbps: float) -> None:
    """A round trip is measured by the packet that is acknowledged, however many others wait for that."""
    assert len({tuple(values(Case(control, gbps=gbps, ack_every=n)).items()) for n in (1, 4, 16, 64)}) == 1


@pytest.mark.parametrize("gbps", RATES)
@pytest.mark.parametrize("delay_us", [0.1, 1, 10])
def test_nscc_is_as_its_authors_simulator_sets_it_up(gbps: float, delay_us: float) -> None:
    """main_uec.cpp and UecSrc::initNsccParams, without trimming, over one switch: two cables there and back."""
    case = Case("nscc", gbps=gbps, delay_us=delay_us)
    packet, ack = (4096 + 78 + 24) * 8 / gbps, 86 * 8 / gbps  # ns
    rtt = 2 * (packet + ack) + 4 * delay_us * 1000 + 2 * 500
    bdp = gbps / 8 * rtt
    a = bdp / (100 / 8 * 12_000)
    found = values(case)
    expected = {
        "base_rtt": rtt, "target_queue": rtt, "quick_adapt": 4 * rtt, "proportional_packets": 4 * a * rtt / 12_000,
        "ai_packets": 5 * a, "period_packets": 0.15 * a, "fast": 0.25 * a, "beta": 0.8, "max_decrease": 0.5,
        "ewma": 0.0125,
    }  # fmt: skip
    assert {k: found[k] for k in expected} == pytest.approx(expected)
    fetch = 4096 * 8 / (1.28 * gbps) + 500  # which windows begin with
    assert found["window"] == pytest.approx(1.5 * (bdp + gbps / 8 * fetch))
    packets = math.ceil(bdp / 4096)
    low, high, most = marks(case)
    assert (low, high, most) == (math.ceil(packets * 0.2) * 4096, math.ceil(packets * 0.8) * 4096, 1.0)


def test_other_controls_keep_their_marks() -> None:
    """DCTCP: 3 KB for each Gb/s, unless a seventh of the bandwidth-delay product is more; DCQCN: by rate."""
    assert marks(Case("dctcp")) == (1_200_000, 1_200_000, 1.0)
    far = Case("dctcp", delay_us=100)
    low, high, most = marks(far)
    assert low == high == math.ceil(far.bdp_bytes / 7) > 1_200_000 and most == 1.0
    assert marks(Case("dcqcn")) == (800_000, 3_200_000, 0.2)


def test_nscc_scales_with_the_queue_that_is_asked_for() -> None:
    """initNsccParams of uec.cpp with main_uec's -target_q_delay 6, at 100 Gb/s and 12 us: a is 1, b is 6 / 12."""
    setting, mss = cc.Setting(100e9, 12e3, 4096), 4096
    found, usual = (cc.CONTROLS["nscc"].values(setting, given) for given in ({"target_queue": 6e3}, {}))
    alpha = 4.0 * mss * 1 * (6 / 12) / 6e3  # per byte and ns below the target
    assert found["proportional_packets"] * mss / found["target_queue"] == pytest.approx(alpha)
    assert found["quick_adapt"] == 4 * 6e3
    changed = {"target_queue", "proportional_packets", "quick_adapt"}
    assert {k for k in found if found[k] != pytest.approx(usual[k])} == changed


@pytest.mark.parametrize("delay_us", [0.1, 1, 10, 100])
@pytest.mark.parametrize("switches", [1, 3, 9])
def test_swift_aims_at_the_idle_round_trip_and_more(switches: int, delay_us: float) -> None:
    """On every path: also on those that are shorter than the longest one."""
    found = values(Case("swift", switches=switches, delay_us=delay_us))
    for there in range(1, switches + 1):
        cables = (there + 1) * ((4096 + 78 + 24 + 86) * 8 / 400 + 2000 * delay_us)
        target = found["base_target"] + found["hop_scale"] * there
        assert target == pytest.approx(cables + 2 * 500 * there + 20_000 + 1000 * there)


def test_swift_where_cables_differ() -> None:
    """Every path's target is above what is idle on the longest one."""
    cables = "{cable:sw0-h2: {delay: 50us}}"
    two = loads(f"name: a\nfabric: {{topology: {{star: {{hosts: 3}}}}, cables: {cables}}}\ntransport: {{cc: swift}}\n")
    setting = Basis(two).setting
    found = cc.CONTROLS["swift"].values(setting, {})
    assert found["base_target"] == pytest.approx(20_000 + setting.network_rtt_ns) and found["hop_scale"] == 1000
    assert setting.network_rtt_ns > 100_000


@pytest.mark.parametrize(("topology", "hops"), [("{star: {hosts: 2}}", 5), ("{ring: {nodes: 16}}", 9)])
def test_hpcc_has_room_for_the_longest_path(topology: str, hops: int) -> None:
    told = loads(f"name: a\nfabric: {{topology: {topology}}}\ntransport: {{cc: hpcc}}\n")
    assert hardware_of(told).nic["cc"]["params"]["hops"] == hops


def test_headroom_counts_all_stamps() -> None:
    """Longer packets take longer to end: three of them, each with four more stamps of 16 bytes."""
    text = "name: a\nfabric: {topology: {ring: {nodes: 16}}}\ntransport: {cc: %s}\n"
    least, most = (hardware_of(loads(text % control)).switch["headroom_bytes"] for control in ("swift", "hpcc"))
    assert most > least + 2 * 64


def test_gradients_are_measured_against_the_idle_round_trip_where_it_is_long() -> None:
    assert values(Case("timely"))["min_rtt"] == 20_000
    far = Case("timely", switches=9)
    assert values(Case("timely", switches=9, delay_us=10))["min_rtt"] > 200_000 > values(far)["min_rtt"]


def test_every_parameter_is_written_as_a_file_has_it() -> None:
    """Written back, they give the same; NICs with other cables have their own."""
    cables = "{cable:sw0-h2: {rate: 100Gbps}}"
    text = "name: a\nfabric: {{topology: {{star: {{hosts: 3}}}}, cables: {cables}}}\ntransport: {{cc: {cc}}}\n"
    told = written_control(loads(text.format(cables=cables, cc="nscc")))
    assert told["cc"]["nscc"].keys() == cc.CONTROLS["nscc"].by_name.keys()
    assert list(told["nics"]) == ["h2"] and told["nics"]["h2"]["nscc"]["ai_packets"] < told["cc"]["nscc"]["ai_packets"]
    again = loads(text.format(cables=cables, cc=json.dumps(told["cc"])))
    assert written_control(again)["cc"] == told["cc"]
    assert json.dumps(written_control(star())) == '{"cc": {"none": {"window": "0B"}}, "timeout": "2ms"}'


@pytest.mark.parametrize(
    ("fabric", "said"),
    [
        ("cable: {rate: 800Gbps}", "PCIe carries 512Gbps of payload, and a cable 800Gbps"),
        ("cable: {rate: 800Gbps}, nic: {pcie: {rate: 800Gbps}}", ""),
        ("cables: {cable:sw0-h1: {rate: 800Gbps}}", "a cable 800Gbps: no NIC sends or receives more"),
        ("nic: {pcie: {rate: 256Gbps}}", "PCIe carries 256Gbps of payload, and a cable 400Gbps"),
        ("", ""),
    ],
)
def test_a_run_says_that_pcie_is_narrower_than_the_cables(fabric: str, said: str) -> None:
    told = list(warnings(loads(f"name: a\nfabric: {{topology: {{star: {{hosts: 2}}}}, {fabric}}}\n")))
    assert len(told) == bool(said) and said in "".join(told)


def test_a_run_says_that_hpcc_does_not_hear_of_all_switches() -> None:
    text = "name: a\nfabric: {topology: {ring: {nodes: 16}}}\ntransport: {cc: %s}\n"
    assert not list(warnings(loads(text % "hpcc")))
    (told,) = warnings(loads(text % "{hpcc: {hops: 5}}"))
    assert "hears of the first 5 switches" in told and "the longest has 9" in told
