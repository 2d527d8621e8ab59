"""What an operator does at a fabric, on the virtual clock: the right place mends exactly, a wrong one hurts or does
nothing, and everything can be taken back but what cannot be in life."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.base.errors import UserError
from testbed.operate.record import log
from testbed.operate.registry import ACTIONS
from testbed.operate.steps.site import Site
from tests.parts.faulty_fabric import DRAINED_NS, FaultyFabric, Outcome, faulty_fabric
from tests.parts.operate_cases import CASES, Case
from tests.parts.operating import back, do


def steady(f: FaultyFabric) -> Outcome:
    """The flows' figures when they no longer change: connections that have failed are found by the next sets."""
    before = f.measure()
    for _ in range(4):
        now = f.measure()
        if now.figures() == before.figures():
            break
        before = now
    return now


def injected(f: FaultyFabric) -> list[str]:
    return [fault["fault"] for fault in f.fabricd.request("faults")["faults"]]


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FaultyFabric, Outcome]]:
    with faulty_fabric() as f:
        f.measure()
        yield f, f.measure()


@pytest.fixture
def fabric(shared: tuple[FaultyFabric, Outcome]) -> Iterator[FaultyFabric]:
    """A fabric that is left as it was."""
    f, healthy = shared
    yield f
    left = injected(f)
    f.heal(left)
    assert left == []
    assert steady(f).figures() == healthy.figures()


@pytest.fixture
def healthy(shared: tuple[FaultyFabric, Outcome]) -> Outcome:
    return shared[1]


def filled_in(f: FaultyFabric, line: str) -> str:
    return line.replace("HEADROOM", f"{Site.of(f.lab).switch('leaf0')['headroom_bytes']}B")


ELSEWHERE = {
    ("flow resync", "loop"), ("flow resync", "dead_ecmp_member"), ("hash seed", "polarised_hash"),
    ("accelerator", "accelerator_down"), ("accelerator reclaim", "slots_leaked"), ("route dateline", "dateline_off"),
    ("controller restart", "controller_dead"),
    ("controller restart", "controller_hung"), ("controller restart", "slow_controller"),
    ("job restart", "worker_frozen"), ("job restart", "worker_killed"),
    ("flow resync", "adaptive_off"), ("flow resync", "wrong_group_weights"),
    ("adaptive restart", "stuck_choice"), ("adaptive restart", "stale_quality"),
    ("switch-trimming", "trim_off"), ("nic replace", "grant_leak"),
    ("nic replace", "few_retries"), ("nic replace", "wrong_gid_index"),
    ("job restart", "wrong_rkey"), ("job restart", "local_protection"),
    *((words, of) for words in ("cable replace", "nic replace")
      for of in ("trim_dscp_lost", "credit_leak", "blackhole_entropy")),
}  # fmt: skip
"""In test_operate_control.py, test_operate_world.py, test_dateline_runs.py: other fabrics, the controller, a job; in
test_adaptive_routes.py; in test_trimming_faults.py; what programs see, in test_verbs_faults.py. This fabric has no
credits, neither sprays nor trims: new plugs and NICs mend such faults as they do any other of a cable or NIC."""


def test_there_is_a_case_for_every_fault_that_an_action_undoes() -> None:
    undone = {(words, fault) for words, action in ACTIONS.items() for fault in (*action.configures, *action.mends)}
    there = {(words, c.fault) for c in CASES for words in ACTIONS if c.right.startswith(f"{words} ")}
    assert undone == there | ELSEWHERE


@pytest.mark.parametrize("case", [c for c in CASES if c.cc == "none"], ids=lambda c: f"{c.fault} {c.right}")
def test_the_right_place_mends_exactly_and_a_wrong_one_does_not(
    case: Case, fabric: FaultyFabric, healthy: Outcome
) -> None:
    before = fabric.inject(case.before) if case.before else []
    healthy = steady(fabric) if before else healthy
    ids = fabric.inject(case.written)
    faulty = fabric.measure()
    assert (faulty.figures() != healthy.figures()) == case.bites
    done = do(fabric, filled_in(fabric, case.wrong))
    assert set(ids) <= set(injected(fabric))
    assert (steady(fabric).figures() != healthy.figures()) == case.bites
    if not done.for_good:
        back(fabric)
    assert {*before, *ids} == set(injected(fabric))
    done = do(fabric, filled_in(fabric, case.right))
    assert steady(fabric).figures() == healthy.figures()
    words = next(words for words in ACTIONS if case.right.startswith(f"{words} "))
    if case.fault in ACTIONS[words].mends:  # the cause is gone
        assert injected(fabric) == [] and done.for_good
        return
    back(fabric)  # it was covered: without the setting it is there again
    assert (steady(fabric).figures() != healthy.figures()) == case.bites
    fabric.heal([*ids, *before])


@pytest.mark.parametrize("case", [c for c in CASES if c.cc != "none"], ids=lambda c: f"{c.fault} {c.right}")
def test_a_nic_gets_the_control_back_that_it_had(case: Case) -> None:
    """Rates remember: each time on a fabric of its own."""
    found = []
    for line in (None, case.right, case.wrong):
        with faulty_fabric(cc=case.cc) as f:
            if line:
                f.inject(case.written)
                do(f, line)
            found.append(f.measure().figures())
    assert found[0] == found[1]
    assert found[0] != found[2]


def told(f: FaultyFabric, line: str) -> str:
    """Why an action is refused; nothing has then been done."""
    before, done = injected(f), log(f.lab.dir)
    with pytest.raises(UserError) as error:
        do(f, line)
    assert (injected(f), log(f.lab.dir)) == (before, done)
    return f"{error.value.where}: {error.value.what} ({error.value.hint})"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "there is no ''"),
        ("interfaces shutdown leaf0:1", "did you mean interface shutdown?"),
        ("interface", "interface shutdown, interface startup"),
        ("interface shutdown", "PORT is missing"),
        ("interface shutdown leaf0:9", "leaf0 has no port 9"),
        ("interface shutdown leaf7:1", "leaf7:1"),
        ("interface shutdown h0:1", "h0 is a NIC"),
        ("interface shutdown leaf0:1 now", "one word too many"),
        ("interface speed leaf0:1 800Gbps", "its speeds: 1Gbps, 10Gbps"),
        ("interface speed leaf0:1 123Gbps", "does not run at 123Gbps"),
        ("interface speed leaf0:1 100", "100"),
        ("interface mtu leaf0:1 67", "from 68 to 9216"),
        ("cable replace leaf0-leaf1", "there is no cable leaf0-leaf1"),
        ("cable move leaf0-spine0 spine0-leaf0", "with itself"),
        ("ecn leaf0 --kmin 900KB", "kmin (900KB) is larger than kmax (60KB)"),
        ("ecn leaf0 off --kmin 1KB", "do not go with off"),
        ("ecn leaf0 --priority 0 --kmin 1KB", "give --kmax"),
        ("ecn leaf0 --pmax 1.5", "from 0 to 1"),
        ("ecn leaf0 --kmim 1KB", "did you mean --kmin?"),
        ("buffer leaf0 2MB", "up to 1200KB"),
        ("buffer leaf0 0B", "no buffer of 0B"),
        ("headroom leaf0:1 2MB", "only 1200KB"),
        ("pfc h1 off", "config nic pfc 1"),
        ("pfcwd leaf0 --detect 0ns --restore 1us --action drop", "more than 0ns"),
        ("qos dscp leaf0 64 3", "from 0 to 63"),
        ("scheduler weight leaf0 3 0", "from 1 to 100"),
        ("nic cc 0 dcqcm", "did you mean 'dcqcn'"),
        ("nic cc 0 dcqcn g=2", "g is from 0 to 1"),
        ("nic cc 0 dcqcn rate_timer=60", "rate_timer"),
        ("nic cc 0 dcqcn fast", "is no parameter"),
        ("nic replace 6", "ranks: 0 to 5"),
        ("rollback 9999", "there is no action 9999"),
        ("rollback leaf0", "names no action"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(line: str, says: str, fabric: FaultyFabric) -> None:
    assert says in told(fabric, line)


def test_a_good_uplink_shut_down_loses_frames_and_then_its_flows_take_another_way() -> None:
    across = [(source, to, 20 * 4096, 0.0) for source in (0, 1, 2) for to in (3, 4, 5)]

    def sent(outcome: Outcome) -> int:
        return outcome.ports["leaf0:4"]["tx_prio3_packets"]

    with faulty_fabric(spines=2) as f:
        healthy = f.measure(across)
        assert sent(healthy) > 0 and not healthy.drops
        down = {"primitive": "params", "cable": "leaf0-spine0", "values": {"up": False}, "operator": True}
        f.fabricd.request("inject", fault="x", at_ns=f.now_ns() + DRAINED_NS + 3000, for_ns=1e6, **down)
        before = f.measure(across)  # while frames are under way
        assert before.reasons.keys() == {"cable"} and None not in before.times
        assert injected(f) == [], "it is gone after its time"
        do(f, "interface shutdown leaf0:4")
        f.measure(across)
        after = f.measure(across)
        assert not after.drops and sent(after) == 0
        back(f)
        f.measure(across)
        assert sent(f.measure(across)) > 0


def test_what_is_taken_back_gives_the_figures_of_before_in_any_order(fabric: FaultyFabric, healthy: Outcome) -> None:
    first = len(log(fabric.lab.dir)) + 1
    for line in ("interface speed leaf0:4 100Gbps", "ecn leaf0 --kmin 5KB --kmax 5KB", "interface shutdown leaf0:1"):
        do(fabric, line)
    do(fabric, "interface startup leaf0:1")
    slow = steady(fabric)
    assert slow.figures() != healthy.figures()
    back(fabric, first)
    assert steady(fabric).figures() not in (slow.figures(), healthy.figures())
    back(fabric, first + 3)  # the start-up: the port is off again
    assert None in fabric.measure().times
    assert "was rolled back already" in told(fabric, f"rollback {first}")
    back(fabric, "all")
    assert [done.state for done in log(fabric.lab.dir)[first - 1 :]] == ["rolled back"] * 4
    assert steady(fabric).figures() == healthy.figures()


def test_what_cannot_be_taken_back_says_so(fabric: FaultyFabric) -> None:
    done = do(fabric, "cable replace leaf0-spine0")
    assert done.state == "done"
    assert "cannot be rolled back: the old cable is gone" in told(fabric, f"rollback {done.number}")
    assert "was not shut down" in do(fabric, "interface startup leaf0:1").notes[0]
    assert "there is nothing to take back" in told(fabric, "rollback")


def test_a_setting_lies_over_faults_that_come_later_or_come_again(fabric: FaultyFabric, healthy: Outcome) -> None:
    do(fabric, "interface speed leaf0:4 400Gbps")
    slow = {"fault": "reduced_rate", "on": "cable:leaf0-spine0", "rate": "100Gbps"}
    ids = fabric.inject(slow)
    assert steady(fabric).figures() == healthy.figures()
    fabric.heal(ids)
    back(fabric)
    ids = fabric.inject({**slow, "for": "300us", "every": "600us"})
    fabric.heal(ids)


def test_faults_and_settings_are_kept_apart(fabric: FaultyFabric) -> None:
    do(fabric, "pfc leaf0:1 off")
    from testbed.inject import live

    assert live.take_out(fabric.lab, "all") == []
    assert fabric.fabricd.request("counters")["faults"][-1]["fault"].startswith(("f", "m"))
    assert not [e for e in fabric.events if e["event"] == "fault" and e["fault"].startswith("config")]
    back(fabric)


def test_the_same_actions_at_the_same_times_give_the_same_figures() -> None:
    """Also with what a person looks at meanwhile, and random loss."""
    found: list[Any] = []
    for looks in (0, 20):
        with faulty_fabric(cc="dcqcn") as f:
            f.inject({"fault": "loss", "on": "cable:leaf1-spine0", "rate": 0.05})
            for line in ("cable replace leaf0-spine0", "ecn leaf0 --kmin 5KB", "nic cc 1 dcqcn g=0.5"):
                for _ in range(looks):
                    f.fabricd.request("counters")
                do(f, line)
                found.append((f.measure().figures(), f.now_ns()))
            found.append([json.dumps(done.time_ns) for done in log(f.lab.dir)])
    assert found[:4] == found[4:]
