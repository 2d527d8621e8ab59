"""Whatever a fabric answers, a schedule in C ends as one in Python does: with the same error, or the same result."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.parts.in_c import by
from tests.parts.scripted_fabric import QP, record, records, reply, scripted
from workloads.collectives.compiled import Compiled
from workloads.collectives.execution import Execution
from workloads.parts.context import Context, HostCosts
from workloads.registry import find
from workloads.verbs import Device, FabricError, wire

SENT, COME = record(wire.SENT, 1), [record(wire.RECEIVED_IMM, imm=k) for k in range(3)]
"""Of a ring of two: two messages each way, of which the second is acknowledged."""


@pytest.mark.parametrize("kind", [wire.RECEIVED_IMM, wire.COMPUTED, wire.SENT, 99])
def test_what_was_not_foreseen_cannot_have_been_answered(tmp_path: Path, kind: int) -> None:
    with by(Compiled), scripted(tmp_path, [records(record(kind | 0x8000, imm=1))]) as path, Device(str(path)) as device:
        entry = find("all_reduce", "ring")
        part = entry.load()(Context(device, 1, HostCosts(), 800), entry, range(2), "float32", "sum", 1)
        part.prepare(800, 0)
        with pytest.raises(FabricError, match=f"a record of kind {kind} with immediate 1 is out of turn"):
            part.run()


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([records(*COME[:2], SENT)], id="all at once"),
        pytest.param([records(COME[0]), records(), records(COME[1]), records(SENT)], id="one by one"),
        pytest.param([records(COME[1]), records(COME[0], SENT)], id="in another order"),
        pytest.param([records(COME[0]), records(COME[0])], id="a message twice"),
        pytest.param([records(COME[0], COME[2])], id="a message too many"),
        pytest.param([records(*COME[:2], record(wire.RECEIVED_IMM, imm=1 << 20))], id="a message of nobody"),
        pytest.param([records(record(wire.RECEIVED_IMM, qp=QP + 1))], id="of a queue pair that there is not"),
        pytest.param([records(COME[0]), records(record(wire.SENT, 1, status=12))], id="a failure"),
        pytest.param([records(record(wire.COMPUTED, 3))], id="a computation that nobody has asked for"),
        pytest.param([records(record(99))], id="a kind that there is not"),
        pytest.param([records(COME[0], count=2)], id="fewer than it says"),
        pytest.param([records(COME[0], COME[1], count=1)], id="more than it says"),
        pytest.param([records(COME[0][:-8])], id="one that is cut short"),
        pytest.param([records(COME[0][:2] + pack("<H", 8) + COME[0][4:])], id="one of a wrong length"),
        pytest.param([reply(wire.RECORDS, b"\0" * 8)], id="without a header"),
        pytest.param([reply(wire.RECORDS, b"\0" * 32, length=1000)], id="of another length than it says"),
        pytest.param([reply(wire.REGION, b"\0" * 8)], id="another answer"),
        pytest.param([b"\1\2"], id="two bytes"),
        pytest.param([records(COME[0]), reply(wire.ERROR, b"no more of this")], id="an error"),
        pytest.param([records(COME[0])], id="and then nothing"),
    ],
)
def test_the_same_ending(tmp_path: Path, answers: list[bytes]) -> None:
    def ending(kind: type) -> str:
        (tmp_path / kind.__name__).mkdir()
        with by(kind), scripted(tmp_path / kind.__name__, answers) as path:
            try:
                with Device(str(path), wake_ns=10.0) as device:
                    context = Context(device, 1, HostCosts(reduce_bps=1e9), 800)
                    entry = find("all_reduce", "ring")
                    part = entry.load()(context, entry, range(2), "float32", "sum", 1)
                    part.prepare(800, 0)
                    part.run()
                    return f"{part.finish() > 0}"
            except Exception as error:
                return f"{type(error).__name__}: {error}"

    assert ending(Compiled) == ending(Execution)
