"""The check of drills on real worlds: one that is one, one whose fault does nothing."""

from __future__ import annotations

from dataclasses import replace

from drills.check.check import check, not_hard
from drills.sheet import file

TEXT = """
title: Steps take longer
level: easy
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}, nic: {timeout: 50us}}
control: {reaction: 20us}
transport: {cc: dcqcn}
job: {collective: all_reduce, algorithm: ring, size: 32KiB}
draw: {bad: {any: switch, role: leaf}}
faults: [%s]
warmup: 50us
begins: 100us
question: [healthy, where, what, fix]
budget: {emulated: 2ms}
"""
CABLE = ("draw: {", "draw: {cable: {any: cable, between: [leaf, spine], carries: job}, ")


def test_a_setting_that_can_be_seen_is_found_and_mended() -> None:
    text = (TEXT % "{fault: reduced_rate, on: $cable, rate: 25Gbps}").replace(*CABLE)
    found = check(file.loads(text, "good.yaml"), "7Q4")
    assert found.passes, found.wrong
    assert found.answer == found.truth and "interfaces status" in found.differs and found.healthy == "healthy"
    assert found.ill["solver"].score == found.score and found.ill["solver"].f1 == 1.0
    assert found.well["solver"].score == 100.0 and found.well["random"].score == 0.0
    assert found.ill["random"].score < 30 and found.ill["loudest"].score < 30, "who only looks has mended nothing"


def test_evidence_has_to_be_so_and_a_solution_is_played() -> None:
    """The solution is worth what its lines are worth: the place alone, and nothing mended."""
    fault = "{fault: wrong_dscp_map, on: $bad, dscp: 26, to: 0}"
    evidence = """evidence:
  - "`show qos config`: DSCP 26 leads elsewhere at one leaf"
  - "`show drops`: `no_qp` at two NICs"
  - "`show interfaces errors`: nothing"
"""
    drill = file.loads(TEXT % fault + evidence, "told.yaml")
    found = check(drill, "7Q4", ["advance 10us", "submit wrong_cc@switch:leaf0", "submit healthy", "give-up"])
    assert found.wrong[0].startswith("line 2 of the solution (submit wrong_cc@switch:leaf0): "), found.wrong
    found = check(drill, "7Q4", ["submit healthy", "submit healthy"], ["7Q5"])
    assert found.healthy == "" and (found.score, found.answer) == (0.0, "healthy"), "the solver is not asked"
    evil = [what for what in found.wrong if "evidence" in what]
    assert any(what.startswith("it asks to mend") for what in found.wrong), "a class without loss costs nothing"
    assert evil == [f"{seed}evidence that does not show here: `show drops`: `no_qp` at two NICs"
                    for seed in ("", "seed 7Q5: ")]  # fmt: skip


def test_what_one_limit_tells_is_not_hard() -> None:
    text = (TEXT % "{fault: loss, on: $cable, rate: 0.1}").replace("level: easy", "level: hard").replace(*CABLE)
    found = check(file.loads(text, "hard.yaml"), "7Q4")
    assert found.ill["thresholds"].f1 == 1.0
    assert [what for what in found.wrong if "called hard" in what], found.wrong
    easy = replace(found, level="easy", wrong=[])
    not_hard(easy)
    assert easy.passes


def test_a_fault_that_nothing_shows_is_no_drill() -> None:
    fault = "{fault: small_buffer, on: $bad, size: 8MB}"
    golden = (TEXT % fault).replace("question", "views: {config: golden}\nquestion")
    found = check(file.loads(golden, "bad.yaml"), "7Q4")
    assert not found.passes and "no view differs" in found.wrong[0]
