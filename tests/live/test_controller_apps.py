"""A user's own controller applications, in whole runs on os-ken and on ryu."""

from __future__ import annotations

import subprocess
from collections import Counter
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from controllers.flows import GROUP_REGISTER, LINK_REGISTER, MEMBER, Hash, Output, members, reweighted, to_network
from results import load
from testbed.base.errors import InputError, UserError
from testbed.experiment import Experiment, loads
from testbed.run import run as running
from testbed.run.outcome import RunFailed
from tests.parts.live_fabric import ROOT

EXPERIMENTS = ROOT / "experiments" / "control"
SMALL = """
name: apps
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}
control: {apps: [mine.py]}
workload:
  - {flows: [{from: 0, to: 2, size: 64KB}, {from: 2, to: 0, size: 64KB}]}
"""
APP = """
from ryu.base import app_manager
from ryu.controller.handler import set_ev_cls
from controllers.apps import PortChanged, Railbed, SwitchReady


class Mine(app_manager.RyuApp):
    _CONTEXTS = {"railbed": Railbed}
"""


def study(name: str, **control: Any) -> Experiment:
    """A ready experiment, with other keys of `control`."""
    made = loads((EXPERIMENTS / name).read_text(), name, EXPERIMENTS)
    return made.model_copy(update={"control": made.control.model_copy(update=control)})


def mine(folder: Path, body: str, text: str = SMALL) -> Experiment:
    """An experiment with an application of these lines."""
    (folder / "mine.py").write_text(APP + body)
    return loads(text, "apps.yaml", folder)


@pytest.fixture(scope="session")
def ryu() -> None:
    """ryu's environment is there."""
    subprocess.run([ROOT / "controllers/ryu-env.sh"], check=True)


@pytest.mark.parametrize("weights", [{5: 3, 6: 1}, {5: 1, 6: 1}, {5: 1, 6: 0}, {5: 0, 6: 0}])
def test_a_group_is_hashed_in_proportion_to_its_ports_weights(weights: dict[int, int]) -> None:
    network = IPv4Network("10.0.0.0/16")
    direct = to_network(IPv4Network("10.0.1.1/32"), (1,))
    flows = reweighted([to_network(network, (5, 6), basis=7), direct, *members((5, 6))], weights.__getitem__)
    wanted = {port: weight for port, weight in weights.items() if weight} or {5: 1, 6: 1}
    (route,) = (f for f in flows if ("ipv4_dst", ("10.0.0.0", "255.255.0.0")) in f.match)
    links = [f for f in flows if f.table == MEMBER]
    if len(wanted) == 1:
        assert (route.actions, links) == ((Output(*wanted),), [])
    else:
        assert route.actions[0] == Hash(sum(wanted.values()), basis=7)
        groups = {value for f in links for name, value in f.match if name == f"reg{GROUP_REGISTER}"}
        assert groups == {route.actions[1].value}  # type: ignore[union-attr]
        assert sorted(dict(f.match)[f"reg{LINK_REGISTER}"] for f in links) == list(range(sum(wanted.values())))
        assert Counter(f.actions[0].port for f in links) == wanted  # type: ignore[union-attr]
    assert direct in flows


def test_weights_move_the_load_and_ryu_gives_the_same_figures(tmp_path: Path, ryu: None) -> None:
    hashes, shares = [], []
    for k, control in enumerate(({"library": "os-ken"}, {"library": "ryu"}, {"apps": []})):
        result = running.run(study("weighted-ecmp.yaml", **control), tmp_path / str(k))
        assert result.fidelity.verdict == "exact"
        hashes.append(result.metrics_sha256)
        ports = load(result.folder).ports
        data = {spine: int(ports[ports.node == spine].tx_bytes.sum()) for spine in ("spine0", "spine1")}
        shares.append(data["spine0"] / sum(data.values()))
    assert hashes[0] == hashes[1] != hashes[2]
    assert shares[0] == pytest.approx(0.75, abs=0.08)  # 3 of 4 flows, of 64 of equal size
    assert shares[2] == pytest.approx(0.5, abs=0.08)


def test_a_drained_spine_carries_nothing_more_and_what_is_on_its_way_arrives(tmp_path: Path) -> None:
    drained = running.run(study("drain.yaml"), tmp_path / "drained")
    usual = running.run(study("drain.yaml", apps=[]), tmp_path / "usual")
    sent = {}
    for name, result in (("drained", drained), ("usual", usual)):
        assert result.fidelity.verdict == "exact"
        assert result.counters["drops"].keys() == {"cable"}, "only what the cable loses"
        ports = load(result.folder).ports
        sent[name] = int(ports[ports.node == "spine0"].tx_bytes.sum())
    # The cable fails early in the first of four exchanges: without the application the spine goes on with the others.
    assert sent["drained"] < sent["usual"] / 2


def test_plain_openflow_beside_the_controllers_is_in_before_the_first_frame(tmp_path: Path) -> None:
    experiment = loads(
        SMALL.replace("mine.py", str(EXPERIMENTS / "block.py")).replace("from: 0, to: 2", "from: 0, to: 1")
    )
    with pytest.raises(RunFailed) as failed:
        running.run(experiment, tmp_path / "run")
    assert "leaf0" in str(failed.value)
    drops = load(failed.value.folder).drops
    assert set(drops.reason) == {"forwarding"} and set(drops.node) == {"leaf0"}


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("\n    def __init__(self, *args, **kwargs):\n        1 / 0\n", 11, "ZeroDivisionError"),
        ("\n    @set_ev_cls(SwitchReady)\n    def ready(self, event):\n        event.nothing\n", 12, "AttributeError"),
        ("\n    def tables(self, tables, down):\n        return {}\n", None, "a list of flows for every switch"),
        ("\n    def avoid(self, down):\n        return [7]\n", None, "TypeError"),
        ("\n\nimport nothing_of_that_name\n", 11, "ModuleNotFoundError"),
        ("\n\nclass Another(Mine):\n    pass\n", None, "2 applications"),
    ],
)
def test_an_application_that_fails_is_named_with_its_line(
    body: str, line: int | None, what: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as failed:
        running.run(mine(tmp_path, body), tmp_path / "run")
    assert what in failed.value.what
    assert failed.value.where == f"{tmp_path}/mine.py" + (f":{line}" if line else "")


def test_what_is_no_application_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no application 'mine.py'") as missing:
        loads(SMALL, "apps.yaml", tmp_path)
    assert missing.value.where == "apps.yaml:4: control.apps"
    with pytest.raises(InputError, match=r"mine.py:9 is not Python"):
        mine(tmp_path, "class\n")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "\n    @set_ev_cls(PortChanged)\n    def changed(self, event):\n        raise ValueError('no')\n",
            "mine.py:12: ValueError: no",
        ),
        (
            "\n    @set_ev_cls(PortChanged)\n    def changed(self, event):\n"
            "        from ryu.lib import hub\n"
            "        parser = self.datapath.ofproto_parser\n"
            "        match = parser.OFPMatch(eth_type=1)\n"
            "        late = parser.OFPFlowMod(self.datapath, match=match, instructions=[])\n"
            "        hub.spawn(self.datapath.send_msg, late)\n"
            "\n    @set_ev_cls(SwitchReady)\n    def ready(self, event):\n        self.datapath = event.datapath\n",
            "from a thread of its own, at a moment of wall time",
        ),
    ],
    ids=["raises", "late"],
)
def test_what_goes_wrong_in_mid_run_shows_in_the_verdict(body: str, reason: str, tmp_path: Path) -> None:
    cut = 'inject: [{fault: cable_down, on: "cable:leaf1-spine0", at: 2us}]\n'
    try:
        fidelity = running.run(mine(tmp_path, body, SMALL + cut), tmp_path / "run").fidelity
        verdict, reasons = fidelity.verdict, fidelity.reasons
    except RunFailed as failed:
        stored = load(failed.folder).fidelity
        verdict, reasons = stored["verdict"], stored["reasons"]
    assert verdict == "doubtful"
    assert any(reason in r for r in reasons), reasons
