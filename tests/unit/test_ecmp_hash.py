"""`control.routing.ecmp`: what a file may say, what a switch's basis becomes, and by what a flow is told apart."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controllers.flows import Choose, Hash
from controllers.routing.routes import Router
from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.overrides import override
from testbed.fabric.bringup import controller_settings
from testbed.operate.registry import ACTIONS
from testbed.operate.steps.steps import Put
from testbed.plan.hardware import hardware_of
from tests.parts.murmur import murmur3, swapped
from topologies import build
from topologies.ranks.hops import Hops
from topologies.ranks.multipath import Hashing, member
from workloads.times.queue_pairs import source_port

CLOS = "{clos: {leaves: 2, spines: 4, hosts_per_leaf: 2}}"


def experiment(routing: str, topology: str = CLOS, transport: str = "{}") -> Experiment:
    return loads(
        f"name: t\nfabric: {{topology: {topology}}}\ncontrol: {{routing: {routing}}}\ntransport: {transport}\n"
        "workload: [{collective: all_reduce, sizes: [1KiB]}]\n"
    )


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("ecmp", "ecmp"),
        ("{ecmp: {}}", "ecmp"),
        ("{ecmp: {seed: null, dest_qp: false}}", "ecmp"),
        ("{ecmp: {seed: 0}}", {"ecmp": {"seed": 0, "dest_qp": False}}),
        ("{ecmp: {dest_qp: true}}", {"ecmp": {"seed": None, "dest_qp": True}}),
    ],
)
def test_what_says_nothing_new_is_written_as_ever(written: str, resolved: Any) -> None:
    assert experiment(written).resolved()["control"]["routing"] == resolved


@pytest.mark.parametrize(
    ("routing", "topology", "what"),
    [
        ("{ecmp: {seed: -1}}", CLOS, "seed"),
        ("{ecmp: {seed: 4294967296}}", CLOS, "seed"),
        ("{ecmp: {sede: 1}}", CLOS, "sede"),
        ("{dimension_order: {seed: 1}}", "{ring: {nodes: 4}}", "has no parameters"),
        ("{ecmp: {seed: 1}}", "{ring: {nodes: 4}}", "on a ring nothing is hashed"),
        ("{ecmp: {dest_qp: true}}", "{torus: {dims: [2, 2]}}", "on a torus nothing is hashed"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(routing: str, topology: str, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)) as error:
        experiment(routing, topology)
    assert "control.routing" in error.value.where


def test_a_sweep_sets_the_seed() -> None:
    swept = override(experiment("ecmp"), ["control.routing.ecmp.seed=3"])
    assert swept.control.routing.hashing == Hashing(seed=3)


def test_a_seed_gives_each_switch_a_basis_of_its_own() -> None:
    """16 bits are what OpenFlow's extension has room for."""
    numbers = np.arange(1 << 16)
    for seed in (0, 1, 2, 77, (1 << 32) - 1):
        bases = Hashing(seed).basis(numbers)
        assert np.array_equal(np.sort(bases), numbers)
        assert [Hashing(seed).basis(n) for n in (0, 1, 4711)] == [bases[0], bases[1], bases[4711]]
    few = [tuple(Hashing(seed).basis(n) for n in range(1, 4)) for seed in range(2000)]
    assert len(set(few)) == len(few)
    assert Hashing().basis(12) == 12


def test_seeds_spread_a_flow_evenly_and_switches_in_a_row_choose_independently() -> None:
    pairs: Counter[tuple[int, int]] = Counter()
    for seed in range(1600):
        one, other = (member(0x0A000001, 0x0A010001, 0xC123, Hashing(seed).basis(n), 4) for n in (1, 2))
        pairs[one, other] += 1
    assert len(pairs) == 16 and max(pairs.values()) < 150 and min(pairs.values()) > 60


def test_rules_hash_by_the_switchs_basis_and_chips_hash_among_the_same_ports() -> None:
    fabric = build("clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": 2})
    seeded = Router(fabric, hashing=Hashing(seed=9)).flows()
    found = {s: {a.basis for f in flows for a in f.actions if isinstance(a, Hash)} for s, flows in seeded.items()}
    assert found["leaf0"] == {Hashing(9).basis(1)} and found["leaf1"] == {Hashing(9).basis(2)}
    chosen, adaptive = (Router(fabric, *of).flows() for of in ((), ("adaptive",)))
    chosen = Router(fabric, hashing=Hashing(dest_qp=True)).flows()
    assert chosen == adaptive
    assert any(isinstance(a, Choose) for f in chosen["leaf0"] for a in f.actions)


def test_controller_and_chips_are_told() -> None:
    told = controller_settings(experiment("{ecmp: {seed: 9, dest_qp: true}}"))
    assert (told["hash_seed"], told["hash_dest_qp"]) == (9, True)
    hardware = hardware_of(experiment("{ecmp: {seed: 9, dest_qp: true}}", transport="{source_port: fixed}"))
    assert hardware.nic["fixed_port"] is True
    assert {name: own["adaptive"]["basis"] for name, own in hardware.of_switch.items()} == {
        name: Hashing(9).basis(k) for k, name in enumerate(("leaf0", "leaf1", *(f"spine{s}" for s in range(4))), 1)
    }
    usual = hardware_of(experiment("{ecmp: {seed: 9}}"))
    assert not usual.of_switch and "fixed_port" not in usual.nic


@pytest.mark.parametrize("seed", [None, 3])
def test_models_hash_as_murmur_does_with_one_word_more_for_the_queue_pair(seed: int | None) -> None:
    fabric = build("clos", {"leaves": 2, "spines": 4, "hosts_per_leaf": 2})
    hops = Hops(fabric, Hashing(seed, dest_qp=True))
    a, b = fabric.nics[0], fabric.nics[3]
    basis = Hashing(seed).basis(1)
    took = set()
    for qp in range(16, 80):
        words = [swapped(int(a.ip) ^ int(b.ip), 4), 17, swapped(0xC000 ^ 4791, 2), qp]
        spine = murmur3(words, basis, basis) % 4
        assert hops.between(0, 3, 0xC000, qp)[1] == ("leaf0", f"spine{spine}")
        took.add(spine)
    assert len(took) == 4
    assert len({tuple(Hops(fabric).between(0, 3, 0xC000, qp)) for qp in range(16, 80)}) == 1


def test_with_a_fixed_port_queue_pairs_look_alike() -> None:
    assert source_port(17, 40, 1, 2, fixed=True) == source_port(18, 41, 3, 4, fixed=True) == 0xC000
    assert list(source_port(np.arange(3), np.arange(3), 1, 2, fixed=True)) == [0xC000] * 3  # type: ignore[type-var]


def test_an_operator_seeds_what_hashes_rules_or_the_chip_and_is_told_where_nothing_does() -> None:
    def asked(chip: dict[str, Any] | None) -> dict[str, Any]:
        fabricd = SimpleNamespace(request=lambda what: {"controllers": 1})
        site: Any = SimpleNamespace(switch=lambda name: {"adaptive": chip} if chip else {}, fabricd=fabricd)
        (step,) = ACTIONS["hash seed"].steps(site, switch="leaf0", seed=7)
        assert isinstance(step, Put)
        return dict(step.primitive)

    assert asked(None)["spec"] == {"operate": "hash", "switch": "leaf0", "seed": 7}
    chip = {"policy": "hash", "basis": 3, "local_repair": False}
    told = asked(chip)
    assert told["switch"] == "leaf0" and told["values"] == {"adaptive": {**chip, "basis": 7}}
    with pytest.raises(InputError, match="leaf0 takes one of its equal ports by two_choices, not by a hash"):
        asked({"policy": "two_choices"})
