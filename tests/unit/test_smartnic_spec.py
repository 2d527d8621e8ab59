"""SmartNIC kinds in an experiment: what a profile fills in, what reaches fabricd and the workers, what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardware.config import fabricd_config
from hardware.smartnic import KINDS, PROFILES, as_markdown, of_kind
from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.blocks.fabric import Complex, Engine
from testbed.experiment.model import Experiment
from testbed.plan.hardware import hardware_of
from testbed.plan.ideal import Ideal
from testbed.plan.steps.plan import plan
from workloads.times.messages import Costs, Link, flow_ns
from workloads.times.messages import Path as Way

TEXT = """
name: s
fabric:
  topology: {TOPOLOGY}
  cable: {rate: 100Gbps}
  nic: NIC
workload:
- {collective: all_reduce, sizes: [64KiB], STEP}
"""


def experiment(nic: str, step: str = "algorithm: ring", topology: str = "star: {hosts: 3}") -> Experiment:
    return loads(TEXT.replace("NIC", nic).replace("STEP", step).replace("TOPOLOGY", topology))


def config(e: Experiment) -> dict[str, Any]:
    return fabricd_config(e.build_fabric(), hardware_of(e), fabric_id="abcd", clock={"mode": "virtual"})


def test_profiles_have_every_figure_of_their_kind() -> None:
    for profile in PROFILES.values():
        model = {"on_path": Engine, "off_path": Complex}[profile.kind]
        assert set(profile.figures) == set(model.model_fields)
        model.model_validate(profile.values)
        assert all(source[:3] in ("[P]", "[D]", "[?]", "[E]") for _, source in profile.figures.values())
    assert {kind: of_kind(kind)[0] for kind in KINDS} == KINDS
    page = (Path(__file__).parents[2] / "docs" / "smartnics.md").read_text()
    assert as_markdown() in page, "put what hardware.smartnic.as_markdown() returns into docs/smartnics.md"


def test_a_plain_nic_has_nothing_more() -> None:
    e = experiment("{mtu: 4096}")
    made = config(e)
    assert len(made["switches"]) == 1 and len(made["nics"]) == 3
    assert not any("engine" in key for key in made["nics"][0])
    assert plan(e).endpoints == [0, 1, 2] and plan(e).complex_costs is None


def test_an_on_path_nic_hands_its_engine_to_fabricd() -> None:
    e = experiment("{kind: on_path, engine: {reduce: 100Gbps}}")
    for nic in config(e)["nics"]:
        engine = {key: value for key, value in nic.items() if key.startswith("engine_")}
        assert engine == {
            "engine_reduce_bps": 100e9, "engine_packets_per_s": 595.2e6, "engine_memory_bytes": 6.5 * 2**20
        }  # fmt: skip
    assert e.resolved()["fabric"]["nic"]["engine"] == {"reduce": "100Gbps", "packets": 595.2e6, "memory": "6656KiB"}


def test_an_off_path_nic_is_a_bridge_and_an_endpoint() -> None:
    e = experiment("{kind: off_path, profile: bluefield2, complex: {post: 123ns}}")
    assert loads(json.dumps(e.resolved())) == e
    made = config(e)
    assert [s["latency_ns"] for s in made["switches"]] == [500, 300, 300, 300]
    host, complex_ = made["nics"][0], made["nics"][3]
    assert (host["pcie_latency_ns"], host["pcie_rate_bps"], host["post_ns"]) == (500, 252e9, 100)
    assert (complex_["pcie_latency_ns"], complex_["pcie_rate_bps"], complex_["post_ns"]) == (300, 200e9, 123)
    assert (complex_["name"], complex_["rank"], complex_["ip"]) == ("arm0", 3, "10.128.0.1")
    cables = {c["name"]: (c["rate_bps"], c["delay_ns"]) for c in made["cables"]}
    assert cables["nic0-sw0"] == (100e9, 500)
    assert cables["h0-nic0"] == (100e9, 0)
    assert cables["arm0-nic0"] == (200e9, 150)


def test_complexes_take_part_only_in_what_asks_for_them() -> None:
    nic = "{kind: off_path, profile: bluefield2}"
    assert plan(experiment(nic)).endpoints == [0, 1, 2]
    made = plan(experiment(nic, "algorithm: omniccl, ranks: [2, 0], aggregators: 1"))
    assert made.endpoints == [0, 1, 2, 5]
    (step,) = made.told()["steps"]
    assert (step["ranks"], step["helpers"], step["spot"]) == ([2, 0], [5], 256)
    assert made.told([2])["costs"]["reduce_bps"] == 800e9 and "cache_bytes" not in made.told([2])["costs"]
    assert made.told([5])["costs"]["cache_bytes"] == 6 << 20
    assert made.told([5])["costs"]["reduce_bps"] == 200e9


def test_spots_stay_in_the_cache() -> None:
    nic = "{kind: off_path, profile: bluefield2, complex: {cache: 1MiB}}"
    (step,) = plan(experiment(nic, "algorithm: omniccl")).told()["steps"]
    assert 2 * 4 * (step["spot"] * 1028 + 16) <= 1 << 20 < 2 * 4 * ((step["spot"] + 1) * 1028 + 16)


def test_the_ideal_time_of_a_flow_goes_through_both_bridges() -> None:
    inside, outside = Link(100e9, 0), Link(100e9, 500)
    way = Way((inside, outside, outside, inside), (300, 500, 300))
    ideal = Ideal(experiment("{kind: off_path, profile: bluefield2}"))
    assert ideal.time_ns(0, 1, 10**6) == pytest.approx(flow_ns(10**6, way, Costs(pcie_rate_bps=252e9)))


def test_a_card_carries_no_more_than_its_port_and_its_host_link() -> None:
    """On cables of 400 Gb/s: BlueField-2's port has 200, its PCIe 4.0 x16 252, unless the file says otherwise."""
    text = TEXT.replace("100Gbps", "400Gbps").replace("STEP", "").replace("TOPOLOGY", "star: {hosts: 2}")

    def of(nic: str) -> tuple[dict[str, float], float, float | None]:
        e = loads(text.replace("NIC", nic))
        assert loads(json.dumps(e.resolved())) == e
        made = config(e)
        flow = Ideal(e).time_ns(0, 1, 10**8)
        return {c["name"]: c["rate_bps"] for c in made["cables"]}, made["nics"][0]["pcie_rate_bps"], flow

    cables, pcie, flow = of("{kind: off_path, profile: bluefield2}")
    assert (cables["nic0-sw0"], cables["h0-nic0"], pcie) == (200e9, 200e9, 252e9)
    assert flow is not None and 10**8 * 8e9 / flow == pytest.approx(200e9 * 4096 / 4178, rel=0.005)
    cables, pcie, _ = of("{kind: off_path, profile: bluefield2, complex: {port: 100Gbps}, pcie: {rate: 64Gbps}}")
    assert (cables["nic0-sw0"], cables["h0-nic0"], pcie) == (100e9, 100e9, 64e9)
    cables, pcie, _ = of("{kind: off_path, profile: bluefield3}")
    assert (cables["nic0-sw0"], cables["h0-nic0"], pcie) == (400e9, 400e9, 504e9)


@pytest.mark.parametrize(
    ("nic", "step", "where", "what"),
    [
        ("{kind: smart}", "", "fabric.nic.kind", "smart"),
        ("{profile: fpga}", "", "fabric.nic.profile", "a plain NIC has no profile"),
        ("{kind: on_path, profile: fgpa}", "", "fabric.nic.profile", "unknown SmartNIC profile 'fgpa'"),
        ("{kind: on_path, profile: bluefield2}", "", "fabric.nic.profile", "bluefield2 is an off_path SmartNIC"),
        ("{engine: {reduce: 1Gbps}}", "", "fabric.nic.engine", "a NIC of kind plain has no engine"),
        ("{kind: off_path, engine: {}}", "", "fabric.nic.engine", "a NIC of kind off_path has no engine"),
        ("{kind: on_path, engine: 4}", "", "fabric.nic.engine", "4"),
        ("{kind: off_path, complex: {cores: 4}}", "", "fabric.nic.complex.cores", "unknown key 'cores'"),
        ("{kind: off_path, complex: {cache: 0B}}", "", "fabric.nic.complex.cache", "0B is out of bounds"),
        ("{mtu: 4096}", "algorithm: omniccl", "workload[0].algorithm", "these NICs have none"),
        ("{kind: off_path}", "algorithm: omniccl, aggregators: 4", "workload[0].aggregators", "3 complexes"),
        ("{kind: off_path}", "algorithm: omniccl, ranks: [0, 3]", "workload[0].ranks[1]", "there is no rank 3"),
        ("{kind: off_path}", "algorithm: omnireduce, spot: 4", "workload[0].spot", "omnireduce has no spot"),
    ],
)
def test_mistakes(nic: str, step: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        experiment(nic, step or "algorithm: ring")
    assert where in error.value.where and what in error.value.what


def test_too_many_complexes() -> None:
    with pytest.raises(InputError) as error:
        experiment("{kind: off_path}", topology="torus: {dims: [32, 32]}")
    assert "fabric.nic.kind" in error.value.where and "too many" in error.value.what
