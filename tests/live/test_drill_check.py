"""The check of drills on real worlds: one that is one, one whose fault does nothing."""

from __future__ import annotations

from testbed.drill.check.check import check
from testbed.drill.sheet import file

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


def test_a_setting_that_can_be_seen_is_found_and_mended() -> None:
    fault = "{fault: wrong_dscp_map, on: $bad, dscp: 26, to: 0}"
    found = check(file.loads(TEXT % fault, "good.yaml"), "7Q4")
    assert found.passes, found.wrong
    assert found.answer == found.truth and "qos config" in found.differs and found.healthy == "healthy"
    assert found.ill["solver"].score == found.score and found.ill["solver"].f1 == 1.0
    assert found.well["solver"].score == 100.0 and found.well["random"].score == 0.0
    assert found.ill["random"].score < 30 and found.ill["loudest"].score < 30, "who only looks has mended nothing"


def test_a_fault_that_nothing_shows_is_no_drill() -> None:
    fault = "{fault: small_buffer, on: $bad, size: 8MB}"
    golden = (TEXT % fault).replace("question", "views: {config: golden}\nquestion")
    found = check(file.loads(golden, "bad.yaml"), "7Q4")
    assert not found.passes and "no view differs" in found.wrong[0]
