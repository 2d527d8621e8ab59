"""MSCCL's XML: each type of step as its interpreter has it, loops, and every mistake with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parts.own_files import EXAMPLES, experiment, refused, wrong_elements
from workloads.collectives.schedule import Send, Shape, Wait
from workloads.own import msccl, xml
from workloads.own.mistake import BadAlgorithm

# Chunks 0 and 1 go round: each gpu passes the sum on, the last keeps it, and it goes round again.  Chunks 2 and 3 meet
# at gpu 0, in its scratch memory: one sum is received onto its own input there, one added by a tb that waits for both.
EVERY_TYPE = """\
<algo name="all" proto="Simple" nchannels="2" nchunksperloop="4" ngpus="3" coll="allreduce" inplace="0">
  <gpu id="0" i_chunks="4" o_chunks="4" s_chunks="6">
    <tb id="0" send="1" recv="2" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="s" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="rcs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="1" recv="1" chan="1">
      <step s="0" type="rrc" srcbuf="i" srcoff="2" dstbuf="s" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="1"/>
      <step s="1" type="s" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="3" deps="2" hasdep="0"/>
    </tb>
    <tb id="2" send="2" recv="2" chan="1">
      <step s="0" type="r" srcbuf="i" srcoff="2" dstbuf="s" dstoff="4" cnt="2" depid="-1" deps="-1" hasdep="1"/>
      <step s="1" type="s" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="3" deps="2" hasdep="0"/>
    </tb>
    <tb id="3" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="1" deps="0" hasdep="0"/>
      <step s="1" type="re" srcbuf="s" srcoff="4" dstbuf="s" dstoff="2" cnt="2" depid="2" deps="0" hasdep="0"/>
      <step s="2" type="cpy" srcbuf="s" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="1"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="4" o_chunks="4" s_chunks="0">
    <tb id="0" send="2" recv="0" chan="0">
      <step s="0" type="rrs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="0" recv="0" chan="1">
      <step s="0" type="s" srcbuf="i" srcoff="2" dstbuf="s" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="2" i_chunks="4" o_chunks="4" s_chunks="0">
    <tb id="0" send="0" recv="1" chan="0">
      <step s="0" type="rrcs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="0" recv="0" chan="1">
      <step s="0" type="s" srcbuf="i" srcoff="2" dstbuf="s" dstoff="4" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="2" dstbuf="o" dstoff="2" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""
MESSAGES = 8  # of a loop: four that go round, two to gpu 0, two back; of two chunks each


def write(folder: Path, text: str) -> str:
    (folder / "a.xml").write_text(text)
    return "./a.xml"


def test_every_type_of_step_does_what_the_interpreter_does(tmp_path: Path) -> None:
    """Chunks of 16 KiB: as many as fit go in one message (the interpreter's maxAllowedCount), longer ones in loops.

    By Simple each message goes in two slices; of the defaults' at least 32 KiB (prims_simple.h: a 32nd of 1 MiB).
    """
    sent = {"64KiB": MESSAGES, "32KiB": MESSAGES, "31KiB": 2 * MESSAGES, "8KiB": 4 * MESSAGES, "3KiB": 12 * MESSAGES}
    for chunk, messages in sent.items():
        its = experiment(tmp_path, 3, write(tmp_path, EVERY_TYPE), chunk=chunk, dtype="int32")
        for seed in range(2):
            assert wrong_elements(its, seed) == ([0, 0, 0], 2 * messages)
    for size, messages in (("32KiB", MESSAGES), ("80KiB", 2 * MESSAGES)):
        its = experiment(tmp_path, 3, write(tmp_path, EVERY_TYPE), sizes=[size], dtype="int32")
        assert wrong_elements(its, 0) == ([0, 0, 0], messages)


@pytest.mark.parametrize("kind", ["cpy", "s", "rcs", "rrc", "r", "re", "rrs", "rrcs"])
def test_a_step_that_does_less_is_noticed(tmp_path: Path, kind: str) -> None:
    """So the algorithm above needs all of each."""
    less = {"rcs": "r", "rrc": "r", "re": "cpy", "rrs": "rcs", "rrcs": "rrs", "r": "rrc", "s": "nop", "cpy": "nop"}
    problem = refused(tmp_path, 3, write(tmp_path, EVERY_TYPE.replace(f'type="{kind}"', f'type="{less[kind]}"', 1)))
    assert re.match(rf"{tmp_path}/a.xml:\d+: gpu \d( tb \d step \d \(\w+\))?: ", problem.what), problem


@pytest.mark.parametrize(
    ("name", "ranks", "loop"),
    [("ring", 4, 6), ("allpairs", 4, 12 + 12), ("hierarchical", 8, 2 * (12 + 12) + 8)],
)
def test_the_examples_send_as_many_messages_as_their_shape_says(name: str, ranks: int, loop: int) -> None:
    """A ring's rank sends 2(n-1), all pairs n-1 twice; a hierarchical one does the latter, and once to its twin."""
    loop = ranks * loop if name == "ring" else loop
    wrong, messages = wrong_elements(experiment(EXAMPLES, ranks, f"./{name}.xml", sizes=["64KiB"], op="max"))
    assert (wrong, messages) == ([0] * ranks, loop)
    size = "128KiB" if name == "hierarchical" else "256KiB"
    wrong, messages = wrong_elements(experiment(EXAMPLES, ranks, f"./{name}.xml", sizes=[size], chunk="16KiB"))
    slices = 1 if name == "allpairs" else 2  # LL passes on a chunk as a whole
    assert (wrong, messages) == ([0] * ranks, slices * loop * (2 if name == "hierarchical" else 4))


def test_by_simple_a_chunk_is_passed_on_in_two_slices() -> None:
    """The first one goes on before the second is waited for; of LL and LL128 all of it (one step of NCCL's buffers).

    Slices are of 16 elements (prims_simple.h: divUp(nelem, 16 * 2) * 16), so the first may be the longer one.
    """
    text = RING.encode()
    ring = msccl.read(text)
    (lane,) = ring(Shape(4, 4 * 40_000, chunk=1 << 19), 1)
    its = [(type(step).__name__, step.stop - step.start) for step in lane.steps if not isinstance(step, Wait)]
    halves = (20_000, 20_000)
    assert its[:2] == [("Send", half) for half in halves]
    assert [one for one in its if one[0] != "Copy"][2:6] == [
        (name, half) for half in halves for name in ("Recv", "Send")
    ]
    assert lane.window == 4
    (lane,) = ring(Shape(4, 4 * 40_008, chunk=1 << 19), 1)
    assert [step.stop - step.start for step in lane.steps[:2] if isinstance(step, Send)] == [20_016, 19_992]
    (lane,) = msccl.read(text.replace(b"Simple", b"LL128"))(Shape(4, 4 * 40_000, chunk=1 << 19), 1)
    assert len([step for step in lane.steps if isinstance(step, Send)]) == 6 and lane.window == 8


def test_a_loop_is_as_long_as_the_protocols_buffer() -> None:
    """8 steps of NCCL's buffers (512 KiB, 600 KiB with flags, 64 KiB with flags): half of them, one, one."""
    assert {name: p.loop_bytes for name, p in msccl.PROTOCOLS.items()} == {
        "Simple": 4 * (4 << 20) // 8,
        "LL128": 640 * 120 * 8 * 15 // 16,
        "LL": 512 * 8 * 16 // 2,
    }
    _, messages = wrong_elements(experiment(EXAMPLES, 4, "./allpairs.xml", sizes=["256KiB"]))  # LL: chunks of 64 KiB
    assert messages == 2 * 24


RING = (EXAMPLES / "ring.xml").read_text()
FIRST = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0"'  # line 4
SWAP = """\
<algo name="swap" ngpus="2" nchunksperloop="1" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="1">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" cnt="1"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" {wait}/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="{first}" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1"/>
      <step s="1" type="{second}" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1"/>
    </tb>
  </gpu>
</algo>
"""


def _with_steps(count: int) -> str:
    """All but a ring's seven do nothing."""
    nops = "".join(f'      <step s="{k}" type="nop" cnt="0"/>\n' for k in range(7, count))
    return RING.replace("    </tb>", f"{nops}    </tb>", 1)


OUR_TURN = {"first": "s", "second": "rrc", "wait": ""}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (RING.replace('type="rrs"', 'type="rrx"', 1), 5, "gpu 0 tb 0 step 1 (rrx): there is no such type of step"),
        (RING.replace(FIRST, FIRST.replace('srcoff="0"', 'srcoff="4"')), 4, "chunk 4 of buffer i, which has 4"),
        (RING.replace(FIRST, FIRST.replace('srcbuf="i"', 'srcbuf="s"')), 4, "chunk 0 of buffer s, which has 0"),
        (RING.replace(FIRST, FIRST.replace('srcbuf="i"', 'srcbuf="x"')), 4, "srcbuf='x' is no buffer"),
        (RING.replace('srcoff="0"', 'srcoff="zero"', 1), 4, "srcoff='zero' is no whole number"),
        (RING.replace('cnt="1"', 'cnt="3"', 1), 4, "rank 1 tb"),
        (RING.replace('cnt="1"', 'cnt="72"', 1), 4, "gpu 0 tb 0 step 0 (s): cnt=72, and MSCCL refuses more than 71"),
        (_with_steps(257), 260, "gpu 0 tb 0 has 257 steps, and MSCCL refuses more than 256"),
        (RING.replace('<tb id="0"', '<tb id="216"', 1), 3, "tb: id=216 is out of range"),
        (RING.replace(' s="1"', ' s="2"', 1), 5, "step s=2 stands where s=1 should"),
        (RING.replace('depid="-1" deps="-1"', 'depid="3" deps="0"', 1), 4, "depid=3, and gpu 0 has no such tb"),
        (RING.replace('send="1"', 'send="-1"', 1), 4, "its tb has no peer to send"),
        (RING.replace('send="1"', 'send="0"', 1), 3, "send=0 is the gpu itself"),
        (RING.replace('send="1"', 'send="9"', 1), 3, "send=9 is out of range"),
        (RING.replace('<gpu id="1"', '<gpu id="0"'), 13, "there is a gpu 0 already, in line 2"),
        (RING.replace('ngpus="4"', 'ngpus="5"'), 1, "ngpus=5, and there is no gpu 4"),
        (RING.replace('coll="allreduce"', 'coll="custom"'), 1, "coll='custom': nobody says what is to come out of it"),
        (RING.replace('coll="allreduce"', 'coll="allgather"'), 2, "i_chunks=4, and nchunksperloop says 1"),
        (RING.replace('proto="Simple"', 'proto="Fast"'), 1, "proto='Fast' is unknown"),
        (RING.replace("</tb>", "<op/></tb>", 1), 11, "<op> in <tb> is not MSCCL's"),
        (RING.replace("</tb>", "</gpu>", 1), 11, "it is no XML: mismatched tag"),
        (RING[:200], 3, "it is no XML"),
        ("", 1, "it is no XML: no element found"),
        ('<?xml version="1.0" encoding="bz2"?><algo/>', 1, "its encoding is not known"),
        ('<?xml version="1.0" encoding="utf_16"?><algo/>', 1, "its encoding is not known"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>" + RING, 1, "it declares a document type"),
        ('<?xml version="1.0"?>\n<!DOCTYPE a SYSTEM "/etc/passwd">' + RING, 2, "it declares a document type"),
        (SWAP.format(first="s", second="rrc", wait=""), 7, "race: this writes chunk 0 of rank 0's vector"),
        (SWAP.format(first="rrc", second="s", wait='depid="0" deps="0"'), 7, "tb 0 never says that its step 0 is done"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    (tmp_path / "a.xml").write_text(text)
    problem = refused(tmp_path, 5 if 'ngpus="5"' in text else 2 if "swap" in text else 4, "a.xml")
    if what == "rank 1 tb":  # one is wanted, three come: what does not fit is at the receiver
        assert problem.what.startswith(
            f"{tmp_path}/a.xml:16: gpu 1 tb 0 step 1 (rrs): 1 elements are wanted, and gpu 0 tb"
        )
        return
    assert problem.what.startswith(f"{tmp_path}/a.xml:{line}: ") and what in problem.what, problem
    assert problem.where.startswith("x.yaml:4: workload[0].algorithm")


def test_a_deadlock_names_who_waits_for_whom(tmp_path: Path) -> None:
    both = SWAP.format(first="rrc", second="s", wait="").replace('type="s"', 'type="s" depid="1" deps="0"', 1)
    text = both.replace('cnt="1" />', 'cnt="1" hasdep="1"/>', 1)
    assert refused(tmp_path, 2, write(tmp_path, text)).what == (
        f"{tmp_path}/a.xml:4: gpu 0 tb 0 step 0 (s): deadlock: it waits for gpu 0 tb 1 step 0 (rrc) in line 7, "
        "that for gpu 1 tb 0 step 0 (rrc) in line 12, that for it"
    )
    text = re.sub(r"( *<step.*\n)((?: *<step.*\n)*)", r"\2\1", RING)  # the first send comes last
    text = re.sub(r' s="(\d)"', lambda s: f' s="{(int(s[1]) - 1) % 7}"', text)
    assert refused(tmp_path, 4, write(tmp_path, text)).what.endswith(
        "gpu 0 tb 0 step 0 (rrs): deadlock: it waits for gpu 3 tb 0 step 0 (rrs) in line 37, "
        "that for gpu 2 tb 0 step 0 (rrs) in line 26, that for gpu 1 tb 0 step 0 (rrs) in line 15, that for it"
    )


def test_as_many_steps_as_msccl_takes_are_taken(tmp_path: Path) -> None:
    assert wrong_elements(experiment(tmp_path, 4, write(tmp_path, _with_steps(256)))) == ([0] * 4, 24)


def test_a_dependency_orders_what_would_be_a_race(tmp_path: Path) -> None:
    """The send of gpu 0 has been copied when its other thread block adds to what it sent."""
    text = SWAP.format(first="s", second="rrc", wait='depid="0" deps="0"')
    text = text.replace('srcoff="0" cnt="1"/>', 'srcoff="0" cnt="1" hasdep="1"/>', 1)
    assert wrong_elements(experiment(tmp_path, 2, write(tmp_path, text)))[0] == [0, 0]


def test_what_does_not_fit_the_step_is_told(tmp_path: Path) -> None:
    write(tmp_path, RING)
    assert refused(tmp_path, 8, "a.xml").what == "all_reduce by a.xml takes 4 ranks, not 8"
    assert refused(tmp_path, 4, "a.xml", "all_gather").what.endswith(
        "it is of all_reduce, and the step does all_gather"
    )
    odd = refused(tmp_path, 4, "a.xml", sizes=["20B"])
    assert odd.what == "20B are not 4 equal chunks of float32 (nchunksperloop)" and odd.hint == "a multiple of 16 bytes"
    assert "cannot be read: there is no such file" in refused(tmp_path, 4, "b.xml").what
    assert "rpc is not done by schedules of hosts" in refused(tmp_path, 4, "a.xml", "rpc").what


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.xml").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert "larger than 16 MiB" in refused(tmp_path, 4, "a.xml").what


def test_the_parser_refuses_entities_by_itself() -> None:
    for text in (b"<!DOCTYPE a><algo/>", b"<!DOCTYPE a [<!ENTITY x 'y'>]><algo/>"):
        with pytest.raises(BadAlgorithm, match="document type"):
            xml.parsed(text)
