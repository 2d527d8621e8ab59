"""Senders that send by different things: keys, which of them hold, what workers and fabricd are told, who gets what."""

from __future__ import annotations

from typing import Any

import pytest

from results.figures.sharing import shares
from results.frames.metrics import rank_rows, result_rows
from results.frames.together import with_rates
from testbed.base.errors import InputError
from testbed.checklist.review import figures, review
from testbed.experiment import loads
from testbed.experiment.blocks.transport import over
from testbed.plan.hardware import hardware_of
from testbed.plan.steps.plan import plan

FILE = """
name: mixed
fabric: {topology: {%s}}
transport: {%s}
workload:
%s
"""
STAR = "star: {hosts: 6}"
ONE = "  - {flows: [{from: 1, to: 0, size: 1MB}]}"


def experiment(transport: str, *steps: str, topology: str = STAR) -> Any:
    return loads(FILE % (topology, transport, "\n".join(f"  - {step}" for step in steps) or ONE))


def told(transport: str, *steps: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The steps as workers are told, and the transports as fabricd is."""
    made = plan(experiment(transport, *steps))
    return made.told()["steps"], list(made.transports)


def controls(transports: list[dict[str, Any]]) -> list[str]:
    return [one["cc"]["algorithm"] for one in transports]


FLOW = "{from: 1, to: 0, size: 1MB%s}"


def flows(*more: str, step: str = "") -> str:
    return f"{{flows: [{', '.join(FLOW % text for text in more)}]{step}}}"


def test_nothing_is_told_where_all_send_alike() -> None:
    """Nor where what is said is what holds anyway."""
    for transport, step in (("cc: dcqcn", ""), ("cc: dcqcn, classes: {3: {cc: dcqcn}}", ", transport: {cc: dcqcn}")):
        (steps, transports) = told(transport, flows("", ", class: 0", step=step))
        assert not transports and not any("sends_by" in one or "watched" in one for one in steps)
        assert "transport" not in hardware_of(experiment(transport)).nic


def test_the_nearest_to_a_flow_holds() -> None:
    """Fabric, NIC, class, step, flow: each goes before those before it, key by key."""
    transport = "cc: none, nics: {1-2: {cc: dcqcn, dscp: 10}}, classes: {4: {cc: swift}}"
    spec = experiment(transport).transport
    assert [over(spec, spec.of_nic(rank)).cc.name for rank in range(4)] == ["none", "dcqcn", "dcqcn", "none"]
    assert spec.of_nic(3) is None and over(spec, spec.of_nic(1)).dscp == 10
    steps, transports = told(
        transport,
        flows("", ", class: 4", ", class: 4, transport: {cc: hpcc}", ", transport: {recovery: selective_repeat}"),
        flows("", ", transport: {cc: timely}", step=", transport: {cc: dctcp}"),
    )
    numbers = [flow.get("transport") for flow in steps[0]["flows"]]
    assert numbers[:2] == [None, None]  # they go by their class and NIC
    of_nic_1 = {its: by if isinstance(by, int) else by[1] for its, by in steps[0]["sends_by"].items()}
    assert of_nic_1.keys() == {"", "4"}
    kinds = [None, *controls(transports)]
    assert kinds[of_nic_1["4"]] == "swift" and kinds[numbers[2]] == "hpcc"
    # its NIC's DSCP is in class 0 (10 is named nowhere), so its control is the NIC's; recovery is its own
    assert of_nic_1[""] == 0 and kinds[numbers[3]] == "dcqcn"
    assert transports[numbers[3] - 1]["recovery"] == "selective_repeat"
    by = steps[1]["sends_by"][""]
    assert {kinds[by if isinstance(by, int) else by[rank]] for rank in range(6)} == {"dctcp"}
    assert kinds[steps[1]["flows"][1]["transport"]] == "timely" and "transport" not in steps[1]["flows"][0]


def test_a_transport_is_whole() -> None:
    """Whatever it is laid over, nothing of that is left: no window of another control, no bitmaps, no paths."""
    base = "cc: {hpcc: {}}, recovery: selective_repeat, sack: {}, loss: {}, ordering: any, multipath: {policy: reps}"
    _, (one,) = told(base, flows(", transport: {cc: dcqcn, recovery: go_back_n, multipath: null}"))
    assert (one["recovery"], one["ordering"], one["sack_bits"], one["loss_after_ns"]) == ("go_back_n", "in_order", 0, 0)
    assert one["multipath"] is None and one["cc"]["params"]["window_bytes"] == one["cc"]["params"]["hops"] == 0
    assert one["cc"]["params"]["cnp_gap_ns"] > 0 and (one["data_dscp"], one["data_class"]) == (26, 3)


def test_nics_have_theirs_in_their_configuration() -> None:
    hardware = hardware_of(experiment("cc: dcqcn, nics: {2: {cc: dctcp, dscp: 0}, 4-5: {recovery: selective_repeat}}"))
    assert hardware.of_nic.keys() == {"h2", "h4", "h5"}
    assert hardware.of_nic["h2"]["transport"]["cc"]["algorithm"] == "dctcp" and hardware.of_nic["h2"]["data_class"] == 0
    assert hardware.of_nic["h4"]["transport"]["recovery"] == "selective_repeat"
    assert hardware.nic["cc"]["algorithm"] == "dcqcn"


def test_groups_of_a_collective_and_of_tasks() -> None:
    step = (
        "{collective: all_reduce, sizes: [64KiB], groups: [[1, 2, 3], [0, 4, 5]], transport: {cc: dcqcn}, "
        "transports: [{cc: dctcp}, {recovery: selective_repeat}]}"
    )
    tasks = (
        "{tasks: {groups: {a: {ranks: [[0, 1]], transport: {cc: swift}}, b: {ranks: [[2, 3]]}}, list: [{id: x, "
        "collective: all_reduce, group: a, size: 1KiB}, {id: y, collective: all_reduce, group: b, size: 1KiB}]}, "
        "transport: {recovery: selective_repeat}}"
    )
    (first, second), transports = told("cc: none", step, tasks)
    one, two = (transports[group["sends_by"][""] - 1] for group in first["groups"])
    assert (one["cc"]["algorithm"], one["recovery"]) == ("dctcp", "go_back_n")
    assert (two["cc"]["algorithm"], two["recovery"]) == ("dcqcn", "selective_repeat")
    a, b = second["communicators"]
    named = transports[a["transport"] - 1]
    assert (named["cc"]["algorithm"], named["recovery"]) == ("swift", "selective_repeat") and "transport" not in b
    places = [place for place, _ in experiment("cc: none", tasks).senders()]  # where a mistake in it is told
    at = ("workload", 0)
    assert places == [("transport",), (*at, "transport"), (*at, "tasks", "groups", "a", "transport")]
    described, _ = plan(experiment("cc: none", step)).described()[0]["groups"]
    assert described["sender"] == "dctcp, go-back-N"


def test_a_rate_of_a_nic_decides_on_its_parameters() -> None:
    """DCQCN's steps grow with the line rate: two NICs that send by one transport have numbers of their own."""
    cables = 'fabric: {topology: {star: {hosts: 3}}, cables: {"cable:h1-sw0": {rate: 100Gbps}}}'
    file = f"name: a\n{cables}\nworkload: [{{collective: all_reduce, sizes: [1KiB], transport: {{cc: dcqcn}}}}]\n"
    made = plan(loads(file))
    by = made.told()["steps"][0]["sends_by"][""]
    slow, fast = (made.transports[by[rank] - 1]["cc"]["params"]["ai_bps"] for rank in (1, 0))
    assert by[0] == by[2] and fast == pytest.approx(4 * slow)


@pytest.mark.parametrize(
    ("transport", "step", "where", "what"),
    [
        ("nics: {x: {}}", "", "transport.nics.x", "names no NIC"),
        ("nics: {3-1: {}}", "", "transport.nics.3-1", "names no NIC"),
        ("nics: {0-2: {}, 2: {}}", "", "transport.nics.2", "rank 2 is in '0-2' already"),
        ("nics: {0: {}, 0-2: {}}", "", "transport.nics.0-2", "rank 0 is in '0' already"),
        ("nics: {6: {}}", "", "transport.nics.6", "there is no rank 6"),
        ("nics: {1: {ack_dscp: 3}}", "", "transport.nics.1.ack_dscp", "unknown key"),
        ("nics: {1: {cc: {dcqcn: {gg: 1}}}}", "", "transport.nics.1.cc.dcqcn.gg", "unknown parameter"),
        ("classes: {8: {}}", "", "transport.classes.8", "is no traffic class"),
        ("classes: {3: {dscp: 1}}", "", "transport.classes[3].dscp", "has its DSCP"),
        ("classes: {3: {sack: {}}}", "", "transport.classes[3].sack", "is of selective repeat"),
        ("", "transport: {ordering: any}", "workload[0].transport.ordering", "is of selective repeat"),
        ("", "transport: {loss: {}}", "workload[0].transport.loss", "is of selective repeat"),
    ],
)  # fmt: skip
def test_mistakes_are_told_where_they_are(transport: str, step: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as told_so:
        experiment(transport, flows("", step=f", {step}" if step else ""))
    assert told_so.value.where.endswith(where) and what in told_so.value.what and told_so.value.hint


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (
            "{collective: all_reduce, algorithm: direct_reduce, sizes: [1KiB], transport: {cc: dcqcn}}",
            "by what each NIC",
        ),
        ("{collective: all_reduce, sizes: [1KiB], transports: [{cc: dcqcn}]}", "1 transports for no groups"),
        (
            "{collective: rpc, sizes: [1KiB], transport: {recovery: selective_repeat, ordering: any}}",
            "in the order in which they were sent",
        ),
    ],
)
def test_what_a_collective_cannot_have(step: str, what: str) -> None:
    with pytest.raises(InputError) as told_so:
        experiment("", step)
    problems = [told_so.value.what, *(problem.what for problem in told_so.value.also)]
    assert any(what in problem for problem in problems), problems


def line(flow: int, role: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    source, rank = flow + 1, flow + 1 if role == "sender" else 0
    return {"kind": "flow", "step": 0, "flow": flow, "from": source, "to": 0, "size_bytes": 8_000, "rank": rank,
            "role": role, "start_ns": start, "end_ns": end, "wrong": 0, **more}  # fmt: skip


def test_who_gets_what_while_all_are_there() -> None:
    """By hand: from 100 (the last start) to 500 ns (the first end) one has 6,000 bytes, the other 2,000."""
    fast = {"course": [(2000, 100.0), (8000, 500.0)]}
    slow = {"course": [(1000, 300.0), (2000, 400.0), (4000, 900.0), (8000, 1000.0)]}
    lines = [
        *(line(0, "sender", 0.0, 500.0, **fast), line(0, "receiver", 0.0, 490.0)),
        *(line(1, "sender", 100.0, 1100.0, **slow), line(1, "receiver", 100.0, 1090.0)),
    ]
    steps = [{"kind": "flows", "senders": ["a", "b"]}]
    rows = result_rows(rank_rows(lines), with_rates(steps, lines))
    assert [row["together_Bps"] for row in rows] == [6000e9 / 400, 2000e9 / 400]
    one, two = shares(rows)
    assert (one.sends_by, one.share, two.share, one.even) == ("a", 0.75, 0.25, 0.5)
    apart = [{**its, "start_ns": its["start_ns"] + 2000 * its["flow"], "end_ns": its["end_ns"] + 2000 * its["flow"]}
             for its in lines]  # fmt: skip
    rows = result_rows(rank_rows(apart), with_rates(steps, apart))
    assert [row["together_Bps"] for row in rows] == [None, None]
    assert [round(one.share, 9) for one in shares(rows)] == [round(1000 / 1500, 9), round(500 / 1500, 9)]


def test_the_checklist_looks_at_every_sender_and_says_who_shares_a_class() -> None:
    def found(transport: str, switch: str = "") -> set[tuple[str, str]]:
        text = (FILE % (STAR, transport, ONE)).replace(STAR + "}", f"{STAR}}}, switch: {{{switch}}}", 1)
        return {(finding.check, finding.where.partition(": ")[2]) for finding in review(loads(text))}

    assert not found("cc: dctcp, nics: {2: {cc: swift}}")
    assert found("cc: dcqcn, nics: {2: {cc: nscc}}") == {("mixed controls", "transport.nics.2.cc")}
    assert not found("cc: dcqcn, nics: {2: {cc: nscc}}", "ecn: {kmin: 100KB, kmax: 400KB}")
    assert found("classes: {1: {cc: dctcp}}", "dscp: {26: 3, 8: 1, 48: 6}") == {("classes", "transport.classes[1].cc")}
    unmarked = found("nics: {1: {cc: dctcp}, 2: {multipath: {policy: reps}, cc: nscc}}", "ecn: null")
    assert {where for check, where in unmarked if check == "classes"} == {
        "transport.nics.1.cc",
        "transport.nics.2.cc",
    }
    assert {where for check, where in unmarked if check == "paths"} == {
        "transport.nics.2.multipath",
        "transport.nics.2.recovery",
    }
    (line,) = figures(experiment("cc: dcqcn, nics: {2: {cc: dctcp}, 3: {cc: dctcp}}"))["mixed controls"]
    assert line == "class 3 is shared by dcqcn, dctcp (transport.nics.2)"
