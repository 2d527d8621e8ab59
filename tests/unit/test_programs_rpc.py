"""Remote procedure calls by hosts and by NICs: the data whatever the timing, what a file may say, when NICs pay off."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.programs import Message
from testbed.plan.steps.plan import plan
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import collective, run
from tests.parts.fake_run import plan as fake_plan
from workloads.programs import figures
from workloads.programs.closed_form import rpc_by_hosts_ns, rpc_by_nics_ns
from workloads.programs.costs import MessageCosts
from workloads.programs.message import Shape, flatten
from workloads.times.messages import Costs, Link, MemoryPath, Path

FULL = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = """
name: calls
fabric:
  topology: {star: {hosts: 3}}
  nic: {kind: NIC}
workload:
- {collective: rpc, STEP}
"""


@FULL
@given(
    st.sampled_from(["host", "nic"]), st.integers(2, 4), st.integers(1, 6), st.integers(1, 9), st.integers(1, 7),
    st.integers(1, 5), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_every_message_arrives_whatever_the_timing(
    algorithm: str, ranks: int, nesting: int, fields: int, requests: int, outstanding: int, batch: bool, seed: int
) -> None:
    keys = {"nesting": nesting, "fields": fields, "requests": requests, "outstanding": outstanding, "batch": batch}
    message = Message(**keys).model_dump(by_alias=True)
    helpers = {"helpers": [ranks + rank for rank in range(ranks)]} if algorithm == "nic" else {}
    step = collective(
        "rpc", [300, 4000], algorithm=algorithm, ranks=list(range(ranks)), iterations=2, message=message, **helpers
    )
    fake = FakeFabric(2 * ranks, seed)
    lines, errors = run(fake, fake_plan(ranks, step))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == ranks * 2 * 2 and {line["wrong"] for line in lines} == {0}


@pytest.mark.parametrize("algorithm", ["host", "nic"])
def test_a_damaged_message_is_counted(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte on its way: whoever gets it says so."""
    from workloads.programs import mailbox

    read = mailbox.Mailbox.read

    def damaged(self: mailbox.Mailbox, record: Any, nbytes: int | None = None) -> bytes:
        got = bytearray(read(self, record, nbytes))
        got[-1] ^= 1
        return bytes(got)

    monkeypatch.setattr(mailbox.Mailbox, "read", damaged)
    helpers = {"helpers": [2, 3]} if algorithm == "nic" else {}
    message = Message().model_dump(by_alias=True)
    step = collective("rpc", [300], algorithm=algorithm, ranks=[0, 1], message=message, **helpers)
    fake = FakeFabric(4, 1)
    lines, _ = run(fake, fake_plan(2, step))
    assert all(line["wrong"] >= 1 for line in lines)


def test_what_workers_are_told() -> None:
    e = loads(TEXT.replace("NIC", "off_path").replace("STEP", "algorithm: nic, sizes: [1KiB], ranks: [2, 0]"))
    made = plan(e)
    (step,) = made.told()["steps"]
    assert (step["ranks"], step["helpers"]) == ([2, 0], [5, 3]) and made.endpoints == [0, 1, 2, 3, 5]
    assert step["message"]["host"] == {"field": 20, "level": 50, "copy": 109.6e9}
    assert made.described()[0]["ranks"] == 2
    assert loads(TEXT.replace("NIC", "plain").replace("STEP", "sizes: [1KiB]")).workload[0].algorithm == "host"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("step", "key", "what", "hint"),
    [
        (
            "algorithm: nic, sizes: [1KiB]",
            "algorithm",
            "nic works on compute complexes, and these NICs have none",
            "off",
        ),
        ("sizes: [8B], message: {fields: 4}", "sizes[0]", "2 integers are 16 bytes, more than 8", "at least 16B"),
        ("sizes: [1MiB], message: {fields: 1000, nesting: 20}", "message.fields", "20000 fields", "at most 16384"),
        ("sizes: [1KiB], message: {nesting: 0}", "message.nesting", "0 is out of bounds", "1"),
        ("sizes: [1KiB], message: {host: {copy: 0Gbps}}", "message.host.copy", "0Gbps is out of bounds", ""),
        ("sizes: [1KiB], message: {deep: 3}", "message.deep", "unknown key 'deep'", "nesting"),
        ("sizes: [1KiB], skew: 1", "skew", "rpc by host has no skew", "message"),
        ("sizes: [1KiB], ranks: [0]", "ranks", "rpc takes at least 2 ranks", ""),
    ],
)
def test_mistakes(step: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        loads(TEXT.replace("NIC", "plain").replace("STEP", step), "t.yaml")
    assert error.value.where.startswith("t.yaml:7: workload[0]") and key in error.value.where
    assert what in error.value.what and hint in error.value.hint


def test_only_a_step_of_calls_has_a_message() -> None:
    with pytest.raises(InputError, match="all_reduce by ring has no message"):
        loads(TEXT.replace("NIC", "plain").replace("rpc, STEP", "all_reduce, sizes: [1KiB], message: {}"))


def test_figures_on_the_page_are_those_of_the_code() -> None:
    assert figures.written(figures.PAGE.read_text()) == figures.PAGE.read_text(), "python -m workloads.programs.figures"
    for its in figures.TABLES.values():
        assert all(figure.source[:3] in ("[P]", "[D]", "[E]") for figure in its.values())


WAY = Path((Link(100e9, 500),) * 2, (500.0,))
INTO = Path((Link(100e9, 0), Link(200e9, 150)), (300.0,), memories=(MemoryPath(252e9, 500), MemoryPath(200e9, 300)))
OUT = Path((Link(200e9, 150), Link(100e9, 0)), (300.0,), memories=(MemoryPath(200e9, 300), MemoryPath(252e9, 500)))


def times(size: int, nesting: int, fields: int) -> tuple[float, float]:
    message = Message(nesting=nesting, fields=fields).model_dump(by_alias=True)
    costs = Costs(pcie_rate_bps=252e9)
    nics = rpc_by_nics_ns(2, size, WAY, costs, message, (INTO, OUT), 200)
    return rpc_by_hosts_ns(2, size, WAY, costs, message), nics


@pytest.mark.parametrize(("nesting", "nbytes", "ns"), [(64, 10_256, 748.6), (16, 5648, 412.3)])
def test_a_host_copies_the_whole_object_into_one_piece(nesting: int, nbytes: int, ns: float) -> None:
    """By hand, 8 fields each, 4 KiB: a header of 16 bytes, 16 for each field, and the strings: all but 8 for each
    integer, which are half of the fields."""
    shape, costs = Shape(4096, nesting, 8), MessageCosts.of(Message().model_dump(by_alias=True))
    assert nbytes == 16 + nesting * 8 * 16 + 4096 - nesting * 4 * 8 == len(flatten(shape.drawn(1)))
    assert costs.gather_ns(shape) == pytest.approx(ns, abs=0.05)


def test_a_caller_is_charged_for_what_it_hands_over() -> None:
    """By hand: a host spends what copying the object and posting take, the server the handler's time too."""
    message = Message(nesting=64).model_dump(by_alias=True)
    step = collective("rpc", [4096], algorithm="nic", ranks=[0, 1], message=message, helpers=[2, 3])
    fake = FakeFabric(4, 1)
    lines, errors = run(fake, fake_plan(2, step))
    assert (fake.error, errors) == (None, [])
    spent = {line["rank"]: line["host_ns"] for line in lines}
    gathered = 10_256 * 8 / 109.6
    assert spent == pytest.approx({0: 1000 + gathered + 100, 1: gathered + 100}, abs=0.01)


def test_complexes_that_sleep_wake_up_for_each_message() -> None:
    """Four in a call: the one of each NIC, there and back."""
    message = Message().model_dump(by_alias=True)
    polled, woken = (rpc_by_nics_ns(2, 4096, WAY, Costs(), message, (INTO, OUT), 200, *wake) for wake in ((), (70.0,)))
    assert woken - polled == pytest.approx(4 * 70)


def test_nics_pay_off_where_fields_are_many_and_bytes_are_few() -> None:
    """By hand, of a call: a field costs a host core four times 20 ns, NICs four times 5.26; the further crossings of
    PCIe, bridge and complex are worth some 6 us, so that there is a number of fields from which NICs are faster."""
    few, many = (times(4096, 1, fields) for fields in (8, 512))
    assert few[0] < few[1] and many[0] > many[1]
    slopes = [[times(4096, 1, n)[k] for n in (128, 256)] for k in (0, 1)]
    assert (slopes[0][1] - slopes[0][0]) / 128 == pytest.approx(4 * 20, rel=0.01)
    # For each field more the object has 16 bytes for its slot, for every other one 8 less in strings: they are copied
    # by a core and sent twice.  The message has one or two for its tag.
    more = 2 * 12 * 8 / 109.6 + 2 * 2 * 12 * 8 / 100
    assert (slopes[1][1] - slopes[1][0]) / 128 == pytest.approx(4 * 5.26 + more, rel=0.2)
    deep, flat = times(4096, 32, 16), times(4096, 1, 16)
    assert deep[0] / deep[1] > 1 > flat[0] / flat[1]
    # Of long strings the bytes count, and NICs carry them three times instead of once.
    large = times(1 << 20, 4, 16)
    assert 1.5 < large[1] / large[0] < 3
