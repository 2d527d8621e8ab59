"""What is said of faults, in files and on the command line, before anything is up: the catalogue and mistakes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click.testing import CliRunner

from controllers.flows.faults import apply
from controllers.routing.routes import Router
from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.commands._options import injection
from testbed.commands.inject import _command
from testbed.experiment import Experiment, loads
from testbed.faults import CATALOGUE, GROUPS, CannotInject, Injection, Mistakes
from testbed.faults.base import KINDS, Opcode
from tests.pages import faults as faults_page
from topologies import build

HEAD = "name: x\nfabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}}\n"


def with_faults(*faults: str) -> Experiment:
    return loads(HEAD + "inject:\n" + "".join(f"  - {fault}\n" for fault in faults))


def test_the_page_is_made_from_the_catalogue() -> None:
    assert faults_page.tables() in faults_page.PAGE.read_text(), "run python -m tests.pages.faults"


@pytest.mark.parametrize("page", [faults_page.PAGE, faults_page.PAGE.with_name("tutorial.md")], ids=lambda p: p.name)
def test_a_page_says_how_many_there_are(page: Path) -> None:
    assert re.findall(r"There are (\d+)\b", page.read_text()) == [str(len(CATALOGUE))]


def test_every_fault_says_what_it_is() -> None:
    assert len(CATALOGUE) == sum(len(faults) for faults in GROUPS.values()), "two faults have the same name"
    for name, cls in CATALOGUE.items():
        assert re.fullmatch("[a-z_]+", name)
        assert all((cls.summary, cls.shows, cls.on, set(cls.on) <= set(KINDS))), name
        assert all(field.description for field in cls.model_fields.values()), name


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_line_of_a_fault_is_what_the_command_takes(name: str) -> None:
    """Parsed by `testbed inject` it is the same injection."""
    times = {"at": "3us", "for": "1.5ms", "every": "4ms"}
    for more in ({}, times):
        made = Injection.of({"fault": name, **CATALOGUE[name].example, **more})
        head, *words = shlex.split(made.line())
        parsed = _command(head).make_context(head, words).params
        given = {key: value for key, value in parsed.items() if key not in ("fabric", "as_json")}
        assert injection(head, given) == made, made.line()


@pytest.mark.parametrize(
    ("fault", "where", "what", "hint"),
    [
        ("{fault: lose, on: all}", "inject[0].fault", "unknown fault 'lose'", "loss"),
        ("{on: all}", "inject[0]", "an injection names its fault", "{fault: NAME"),
        ("{fault: loss, rate: 0.1}", "inject[0].on", "where does loss strike?", "cable, port, nic"),
        ("{fault: loss, on: all}", "inject[0].rate", "missing", ""),
        ("{fault: loss, on: all, rate: 1.5}", "inject[0].rate", "1.5", "1"),
        ("{fault: loss, on: all, rate: -0.1}", "inject[0].rate", "-0.1", "0"),
        ("{fault: loss, on: all, rate: .nan}", "inject[0].rate", "nan", ""),
        ("{fault: loss, on: all, rate: 0.1, rat: 1}", "inject[0].rat", "unknown key", "rate"),
        ("{fault: loss, on: all, rate: 0.1, classes: [8]}", "inject[0].classes[0]", "8", "7"),
        ("{fault: loss, on: all, rate: 0.1, opcodes: [ACK]}", "inject[0].opcodes[0]", "ACK", "ACKNOWLEDGE"),
        ("{fault: loss, on: all, rate: 0.1, at: 5}", "inject[0].at", "5", "ns"),
        ("{fault: loss, on: all, rate: 0.1, every: 5us}", "inject[0].every", "`every` needs `for`", "1ms of every"),
        (
            "{fault: loss, on: all, rate: 0.1, for: 5us, every: 5us}",
            "inject[0].every",
            "`every` needs `for`",
            "1ms of every",
        ),
        ("{fault: burst_loss, on: all, to_bad: 0.1, to_good: 1.01}", "inject[0].to_good", "1.01", "1"),
        ('{fault: loss, on: "cable:h0-spine0", rate: 0.1}', "inject[0]", "cable", ""),
        ('{fault: loss, on: "nic:4", rate: 0.1}', "inject[0]", "nic", ""),
        ("{fault: loss, on: controller, rate: 0.1}", "inject[0]", "does not strike a controller", "cable, port, nic"),
        ('{fault: small_buffer, on: "nic:0", size: 1MB}', "inject[0]", "does not strike a nic", "switch"),
        ('{fault: wrong_port, on: "switch:leaf0", to: 0, port: 9}', "inject[0].port", "no port 9", "1 to 4"),
        ('{fault: missing_entry, on: "switch:leaf0", to: 4}', "inject[0].to", "no rank 4", "0 to 3"),
        (
            '{fault: loop, on: "switch:leaf0", to: 0, neighbour: leaf1}',
            "inject[0].neighbour",
            "no neighbour",
            "its neighbours: spine0, spine1",
        ),
        ('{fault: miswired, on: "nic:0", other: 0}', "inject[0].other", "with itself", ""),
        ('{fault: miswired, on: "nic:0", other: 9}', "inject[0].other", "no 9 to swap", ""),
        ('{fault: incast, on: "nic:0", senders: [1, 7]}', "inject[0].senders", "no such rank", "0 to 3"),
        ('{fault: incast, on: "nic:0", senders: [0]}', "inject[0]", "nobody would send", "itself"),
        ('{fault: wrong_cc, on: "nic:0", parameters: {gg: 1}}', "inject[0].parameters.gg", "'gg'", "did you mean 'g'"),
        ('{fault: wrong_cc, on: "nic:0", parameters: {g: 2}}', "inject[0].parameters.g", "g is from 0 to 1", ""),
        ('{fault: wrong_cc, on: "nic:0", parameters: {set: hpcc}}', "inject[0].parameters.set", "no parameter", ""),
        ('{fault: wrong_cc, on: "nic:0", parameters: {g: 1}, cc: dcqc}', "inject[0].cc", "'dcqc'", "dcqcn"),
        (
            '{fault: wrong_cc, on: "nic:0", parameters: {g: 1}}',
            "inject[0].cc",
            "the NICs run none, not dcqcn",
            "transport.cc",
        ),
        ("{fault: ecn_thresholds, on: all, kmin: 9KB, kmax: 8KB}", "inject[0].kmin", "larger than kmax", ""),
    ],
)
def test_a_mistake_is_named_with_its_place(fault: str, where: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as told:
        with_faults(fault)
    assert told.value.where.endswith(where)
    assert what in told.value.what
    assert hint in (told.value.hint or "")


@pytest.mark.parametrize(
    ("fault", "key", "worst", "hint"),
    [
        ("reduced_rate, on: all, rate: {}", "rate", ("100Gbps", "200Gbps", "3Tbps"), "less than 100Gbps"),
        ('reduced_rate, on: "switch:leaf1", rate: {}', "rate", ("100Gbps",), "less than 100Gbps"),
        ('reduced_rate, on: "nic:0", rate: {}', "rate", ("400Gbps",), "less than 400Gbps"),
        ("long_cable, on: all, delay: {}", "delay", ("0ns", "500ns", "2us"), "more than 2us"),
        ('long_cable, on: "cable:h0-leaf0", delay: {}', "delay", ("500ns",), "more than 500ns"),
        # payload, then IPv4, UDP, BTH, RETH, immediate, ICRC; telemetry of five hops, 96 bytes, is HPCC's alone
        ("small_mtu, on: all, mtu: {}", "mtu", ("9000", str(4096 + 20 + 8 + 12 + 16 + 4 + 4)), "less than 4160"),
        ("small_buffer, on: all, size: {}", "size", ("32MB", "64GB"), "less than 32MB"),
        # 2 x 500 ns, a frame of 4096 + 78 + 96 (+ 24 around it) and a pause of 84 at 400 Gbit/s, two frames
        ('small_headroom, on: "port:leaf0:1", size: {}', "size", ("63KB",), "less than 62615B"),
        ("short_watchdog, on: all, detect: {}", "detect", ("400ms", "1s"), "less than 400ms"),
        ("slow_pcie, on: all, rate: {}", "rate", ("512Gbps", "9Tbps"), "less than 512Gbps"),
        ("cpu_quota, on: all, cpus: {}", "cpus", ("2.5", "4"), "less than 2.5 CPUs"),
        ("slow_controller, on: controller, reaction: {}", "reaction", ("0ns", "1ms"), "more than 1ms"),
    ],
)
def test_no_fault_gives_more_than_there_is(fault: str, key: str, worst: Sequence[str], hint: str) -> None:
    """What it takes away is there: rates, buffers .. of the parts that it strikes, by the experiment."""
    cables = '{"cable:leaf1-spine0": {rate: 100Gbps}, "cable:leaf0-spine0": {delay: 2us}}'
    head = HEAD.replace("2}}}", f"2}}}}, cables: {cables}}}") + "workers: {cpus: 2.5}\n"
    head += "clock: real\n" if "cpu" in fault else ""
    for value in worst:
        with pytest.raises(InputError) as told:
            loads(f"{head}inject:\n- {{fault: {fault.format(value)}}}\n")
        assert told.value.where.endswith(f"inject[0].{key}") and "makes nothing worse" in told.value.what
        assert hint in told.value.hint, told.value.hint


def test_less_than_there_is_may_be_injected() -> None:
    """Just on the other side of each bound."""
    loads(f"{HEAD}transport: {{cc: hpcc}}\ninject:\n- {{fault: small_mtu, on: all, mtu: 4255}}\n")
    loads(
        HEAD.replace("2}}}", "2}}, switch: {watchdog: null, headroom: 9KB}, nic: {pcie: {rate: 100Gbps}}}")
        + "inject:\n- {fault: reduced_rate, on: all, rate: 399Gbps}\n- {fault: slow_pcie, on: all, rate: 99Gbps}\n"
        "- {fault: small_mtu, on: all, mtu: 4159}\n- {fault: small_headroom, on: all, size: 8999B}\n"
        "- {fault: short_watchdog, on: all, detect: 10s}\n- {fault: long_cable, on: all, delay: 501ns}\n"
    )


@pytest.mark.parametrize(("clock", "longest"), [("virtual", 1024 + 20 + 8 + 12 + 16 + 4 + 4), ("real", 1500)])
def test_on_the_real_clock_frames_of_the_hosts_kernels_are_the_longest(clock: str, longest: int) -> None:
    """Their interfaces have Ethernet's MTU (RFC 894)."""
    head = HEAD.replace("2}}}", f"2}}}}, nic: {{mtu: 1024}}}}\nclock: {clock}")
    loads(f"{head}inject:\n- {{fault: small_mtu, on: all, mtu: {longest - 1}}}\n")
    with pytest.raises(InputError) as told:
        loads(f"{head}inject:\n- {{fault: small_mtu, on: all, mtu: {longest}}}\n")
    assert f"less than {longest}" in told.value.hint


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputError) as told:
        with_faults("{fault: loss, on: all, rate: 2}", "{fault: lose, on: all}")
    assert len(told.value.also) == 1


def test_an_experiment_writes_its_faults_out_and_reads_them_again() -> None:
    experiment = with_faults('{fault: reordering, on: "nic:0", rate: 0.5, at: 3us, for: 1ms, every: 2ms}')
    written = experiment.resolved()["inject"]
    assert written == [
        {"fault": "reordering", "on": "nic:0", "at": "3us", "for": "1ms", "every": "2ms", "direction": "both",
         "classes": None, "opcodes": None, "of_dscp": None, "qp": None, "rate": 0.5, "delay": "1us"}
    ]  # fmt: skip
    assert loads(HEAD + yaml.safe_dump({"inject": written})).inject == experiment.inject


NEED_PATHS = ("blackhole_entropy", "in_order_nic", "reps_late_marks")
SPRAYS = "{recovery: selective_repeat, loss: {}, multipath: {policy: reps}}"


def test_every_example_can_be_injected_as_it_stands_in_the_docs() -> None:
    head = HEAD.replace("2}}}", "2}}, switch: {accelerator: {}}}") + "transport: {cc: dcqcn}\n"
    page = faults_page.tables().splitlines()
    for name, cls in CATALOGUE.items():
        line = next(text for text in page if text.startswith(f"Such as: `{{fault: {name},"))
        clock = "clock: real\n" if cls.only_real_clock else ""
        clock += "control: {routing: adaptive}\n" if cls.adaptive else ""
        transport = SPRAYS if cls.name in NEED_PATHS else f"{{cc: {'rccc' if cls.grants else 'dcqcn'}}}"
        fits = (
            head.replace("{cc: dcqcn}", transport)
            if not cls.only_on
            else head.replace("clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}", "ring: {nodes: 4}")
        )
        if cls.cable_credits:
            fits = fits.replace("switch: {acc", "cable: {flow_control: credits}, switch: {acc")
        fits = fits.replace("switch: {", "switch: {pfc: false, trimming: {}, ") if cls.trims else fits
        (read,) = loads(f"{fits}{clock}inject:\n- {line.removeprefix('Such as: ').strip('`')}\n").inject
        assert read.written().items() >= Injection.of({"fault": name, **cls.example}).written().items()


def test_a_fault_of_some_topologies_says_which() -> None:
    with pytest.raises(InputError) as told:
        with_faults("{fault: dateline_off, on: all}")
    assert "not for a clos" in told.value.what and "ring, torus" in told.value.hint


def requests(**written: Any) -> list[dict[str, Any]]:
    injection = Injection.of(written)
    fabric = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2})
    return injection.requests(injection.place(fabric), "f1", now_ns=100.0)


def test_opcodes_are_those_that_fabricd_knows() -> None:
    source = (faults_page.DOCS.parent / "hardware" / "fabricd" / "wire" / "opcode.def").read_text()
    assert set(re.findall(r'OPCODE\((?:RC|UD)_\w+, "(\w+)"', source)) == set(get_args(Opcode))


def test_a_direction_is_the_port_that_frames_leave_by() -> None:
    def ports(on: str, direction: str) -> list[str]:
        return requests(fault="loss", rate=0.1, on=on, direction=direction)[0]["ports"]

    assert ports("cable:h0-leaf0", "forward") == ["h0:1"]
    assert ports("cable:h0-leaf0", "backward") == ["leaf0:1"]
    assert ports("cable:leaf0-h0", "forward") == ["leaf0:1"]
    assert ports("cable:h0-leaf0", "both") == ["h0:1", "leaf0:1"]
    assert ports("port:leaf0:3", "both") == ["leaf0:3"]


def test_a_flow_is_struck_where_it_begins_and_by_its_two_ranks() -> None:
    there, back = requests(fault="loss", rate=0.1, on="flow:0->3")
    assert (there["ports"], there["match"]) == (["h0:1"], {"src_rank": 0, "dst_rank": 3})
    assert (back["ports"], back["match"]) == (["h3:1"], {"src_rank": 3, "dst_rank": 0})
    assert (there["fault"], back["fault"]) == ("f1", "f1.1")


def test_times_count_from_now() -> None:
    (request,) = requests(fault="drop_first", n=1, on="nic:0", at="50ns", **{"for": "1us"})
    assert (request["at_ns"], request["for_ns"]) == (150.0, 1000.0)
    assert "every_ns" not in request


def test_flows_of_forwarding_faults_never_have_the_same_match() -> None:
    """A switch holds one flow of a match: the fault that came last has it, and healing gives it back."""
    fabric = build("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 2})
    right = {name: list(flows) for name, flows in Router(fabric, "ecmp").flows().items()}
    shadow = {"forwarding": "shadow", "switch": "leaf0", "to": 3}
    wrong = {"forwarding": "wrong_port", "switch": "leaf0", "to": 3, "port": 1}

    def at_leaf0(*specs: dict[str, Any]) -> set[Any]:
        flows = apply(fabric, right, [(spec, frozenset()) for spec in specs])["leaf0"]
        assert len({(f.table, f.priority, f.match) for f in flows}) == len(flows)
        return set(flows)

    assert at_leaf0(shadow, wrong) == at_leaf0(wrong) != at_leaf0(shadow) == at_leaf0(wrong, shadow)


def test_the_command_lists_faults_and_parameters() -> None:
    whole = CliRunner().invoke(cli, ["inject", "--list"])
    assert all(name in whole.output for name in CATALOGUE)
    one = CliRunner().invoke(cli, ["inject", "loss", "--list"])
    assert "--rate" in one.output
    assert "[0<x<=1; required]" in one.output
    assert one.output == CliRunner().invoke(cli, ["inject", "loss", "--help"]).output
    assert "cable:A-B, port:SWITCH:N" in " ".join(one.output.split())
    assert one.output == CliRunner().invoke(cli, ["inject", "--list", "loss"]).output


def test_the_command_lists_faults_for_programs() -> None:
    told = json.loads(CliRunner().invoke(cli, ["inject", "--list", "--json"]).stdout)["faults"]
    assert [f["fault"] for f in told] == list(CATALOGUE)
    assert set(told[0]) == {"fault", "on", "summary", "shows", "parameters", "required"}
    one = json.loads(CliRunner().invoke(cli, ["inject", "loss", "--list", "--json"]).stdout)
    assert one == told[0] and one["required"] == ["rate"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_fault_has_options_that_give_the_injection_of_a_file(name: str) -> None:
    cls = CATALOGUE[name]
    command = cli.get_command(None, "inject").get_command(None, name)  # type: ignore[arg-type, union-attr]
    assert command is not None
    parameters = {p.name: p for p in command.params}
    assert set(cls.model_fields) | {"on", "at", "for", "every"} <= set(parameters)
    for field, info in cls.model_fields.items():
        assert parameters[field].required == info.is_required()


def test_options_are_read_as_a_file_is() -> None:
    command = cli.get_command(None, "inject").get_command(None, "loss")  # type: ignore[arg-type, union-attr]
    words = [
        "--on",
        "nic:1",
        "--rate",
        "0.5",
        "--classes",
        "3,4",
        "--opcodes",
        "CNP",
        "--of_dscp",
        "26",
        "--for",
        "1ms",
    ]
    given = command.make_context("loss", words).params  # type: ignore[union-attr]
    made = injection("loss", {k: v for k, v in given.items() if k not in ("fabric", "as_json")})
    written = {"fault": "loss", "on": "nic:1", "rate": 0.5, "classes": [3, 4], "opcodes": ["CNP"], "of_dscp": 26}
    assert made == Injection.of({**written, "for": "1ms"})


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["lose", "--on", "all"], "unknown fault 'lose'"),
        (["loss"], "Missing option '--on'"),
        (["loss", "--on", "all"], "Missing option '--rate'"),
        (
            ["loss", "--on", "all", "--rate", "10%"],
            "'10%' is not a number; must be more than 0 and at most 1, such as 0.1",
        ),
        (
            ["loss", "--on", "all", "--rate", "2"],
            "Invalid value for '--rate': 2 is out of bounds; must be more than 0 and at most 1",
        ),
        (["loss", "--on", "all", "--rate"], "'--rate' requires an argument"),
        (["loss", "--on", "all", "--raet", "1"], "--rate"),
        (["loss", "--on", "all", "--rate", "0.1", "--at", "5"], "Invalid value for '--at': '5' has no unit"),
        (
            ["loss", "--on", "all", "--rate", "0.1", "--classes", "3,9"],
            "9 is out of bounds; must be at least 0 and at most 7",
        ),
        (["loss", "--on", "all", "--rate", "0.1", "--every", "1ms"], "command line: --every"),
    ],
)
def test_the_command_refuses_before_it_looks_for_a_fabric(words: Sequence[str], what: str) -> None:
    result = CliRunner().invoke(cli, ["inject", *words])
    assert (result.exit_code, "error:" in result.output.lower(), what in result.output) == (2, True, True), (
        result.output
    )


def test_mistakes_and_misfits_are_errors_of_their_own() -> None:
    with pytest.raises(Mistakes):
        Injection.of("loss")
    with pytest.raises(CannotInject):
        requests(fault="pause_storm", on="switch:leaf0")
