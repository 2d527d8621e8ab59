"""Choices of users' own C files: read without running them, refused with their line; examples against their sources."""

from __future__ import annotations

import ctypes
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from hardware.build import SOURCES
from hardware.cc import Setting
from testbed.base.errors import InputError
from testbed.experiment import Experiment, load, loads
from testbed.machines.identity import file_hashes, resolved_hash
from testbed.own.adaptive import _Adaptive
from testbed.own.compiler import compiled
from testbed.own.multipath import _Multipath
from testbed.own.name import Name, resolved
from testbed.plan.hardware import hardware_of
from testbed.run import own_files
from testbed.run.sweep import points

EXAMPLES = Path(__file__).parents[2] / "experiments" / "own"
MINE = """#include "railbed.h"
%(top)s
static uint32_t pick(struct railbed_%(of)s *its)
{
	%(what)s
}
%(macro)s(%(version)s, %(more)s);
"""
PATHS = {"of": "paths", "macro": "RAILBED_MULTIPATH", "top": "", "what": "return its->entropies - 1;", "version": 2,
         "more": ".pick = pick"}  # fmt: skip
PORTS = {**PATHS, "of": "choice", "macro": "RAILBED_ADAPTIVE", "what": "return its->ports - 1;"}
GIVEN = '.pick = pick, .parameters = {{"share", RAILBED_NUMBER, {%s}, 0, 1, "of what there is"}}'


def loaded(folder: Path, multipath: str = "null", policy: str = "two_choices") -> Experiment:
    topology = "{clos: {leaves: 2, spines: 2, hosts_per_leaf: 2}}"
    text = f"name: own\nfabric: {{topology: {topology}}}\ntransport:\n  recovery: selective_repeat\n"
    text += f"  multipath: {multipath}\ncontrol:\n  routing:\n    adaptive:\n      policy: {policy}\n"
    return loads(text, "own.yaml", folder)


def write(folder: Path, kind: dict[str, object], **other: object) -> Path:
    (folder / "mine.c").write_text(MINE % {**kind, **other})
    return folder


def refused(folder: Path, **chosen: str) -> str:
    with pytest.raises(InputError) as error:
        loaded(folder, **chosen)
    said = f"{error.value.where} {error.value.what} ({error.value.hint})".replace(f"{folder}/", "")
    return re.sub(r"^own.yaml:\d+: |(mine\.c:\d+):\d+", r"\1", said)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"top": "#include <stdlib.h>", "what": "return (uint32_t)random();"}, "mine.c:5: random cannot be used here"),
        ({"top": "static uint32_t calls;", "what": "return calls++;"}, "mine.c:2: calls would be kept outside its sta"),
        ({"what": "return its->entropy + port;"}, "mine.c:5: error: "),
        ({"version": 3}, "mine.c is written for version 3 of railbed.h, and this is 2 ({macro}(2, ..), and what doc"),
        ({"more": ".summary = \"none\""}, "mine.c has no pick()"),
        ({"more": GIVEN % "5"}, "mine.c: parameter 0 (share): its default 5 is not from 0 to 1"),
        ({"more": ".pick = pick, .state_bytes = {most} + 1"}, "mine.c: {whose} state has {more} bytes ({most} at mos"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, other: dict[str, object], said: str) -> None:
    of = {
        "multipath": (PATHS, {"macro": "RAILBED_MULTIPATH", "most": 1024, "more": 1025, "whose": "a queue pair's"}),
        "policy": (PORTS, {"macro": "RAILBED_ADAPTIVE", "most": 1 << 20, "more": (1 << 20) + 1, "whose": "a switch's"}),
    }
    where = {"multipath": "transport.multipath.file", "policy": "control.routing.adaptive.policy.file"}
    for key, (kind, words) in of.items():
        its = {name: str(v).replace("{most}", str(words["most"])) for name, v in other.items()}
        write(tmp_path, kind, **its)
        told = re.sub(r"\{(\w+)\}", lambda found, words=words: str(words[found[1]]), said)
        assert refused(tmp_path, **{key: "{file: mine.c}"}).startswith(f"{where[key]} {told}")


def test_a_file_is_of_one_kind_and_may_be_of_several(tmp_path: Path) -> None:
    write(tmp_path, PATHS)
    assert (
        "mine.c defines no railbed_adaptive (it ends with RAILBED_ADAPTIVE(2, ..): see docs/own-paths.md)"
        in refused(tmp_path, policy="mine.c")
    )
    (tmp_path / "mine.c").write_text(MINE % PATHS + (MINE % PORTS).replace("pick", "port").replace(".port", ".pick"))
    its = hardware_of(loaded(tmp_path, "mine.c", "mine.c"))
    assert set(its.own) == {"multipath_policies", "adaptive_policies"}
    assert its.nic["multipath"]["policy"] == its.switch["adaptive"]["policy"] == "mine.c"


def test_parameters_marks_and_content_are_the_files(tmp_path: Path) -> None:
    marks = ", .kmin = {0.5, RAILBED_NETWORK_BDP}, .kmax = {1, RAILBED_NETWORK_BDP}, .pmax = 1"
    marks += ", .marks = true, .one_path = true"
    write(tmp_path, PATHS, more=GIVEN % "0.5" + marks)
    first = loaded(tmp_path, "{file: mine.c, entropies: 32, share: 0.75}")
    assert first.transport.multipath is not None
    entry = first.transport.multipath.entry
    assert (entry.hears, entry.one_path, entry.marks and entry.marks(Setting(100e9, 10_000, 4096))) == (
        True, True, (62_500, 125_000, 1.0),
    )  # fmt: skip
    assert hardware_of(first).nic["multipath"] == {"policy": "mine.c", "entropies": 32, "params": {"share": 0.75}}
    assert refused(tmp_path, multipath="{file: mine.c, share: 2}").startswith(
        "transport.multipath.share share is from 0"
    )
    assert "unknown parameter of mine.c 'shore'" in refused(tmp_path, multipath="{file: mine.c, shore: 2}")
    assert "entropies are a power of two" in refused(tmp_path, multipath="{file: mine.c, entropies: 3}")
    assert "is no choice among paths" in refused(tmp_path, multipath="{file: mine.c, policy: round}")
    assert loads(json.dumps(first.resolved()), "again.yaml").resolved() == first.resolved()
    assert list(file_hashes(first)) == [f"{tmp_path}/mine.c"]
    own_files.keep(first, tmp_path)
    assert (tmp_path / "controls" / "mine.c").read_text() == (tmp_path / "mine.c").read_text()
    write(tmp_path, PATHS, more=GIVEN % "0.6" + marks)
    assert resolved_hash(loaded(tmp_path, "{file: mine.c, entropies: 32, share: 0.75}")) != resolved_hash(first)
    with pytest.raises(ValidationError, match="an algorithm from a file has no place here"):
        Experiment.model_validate({**first.written()}, context={"directory": tmp_path, "own": False})


def test_the_examples_are_short_and_stand_beside_all_of_ours() -> None:
    assert all(len((EXAMPLES / name).read_text().splitlines()) <= 70 for name in ("flowbender.c", "drill.c"))
    its = [point.experiment for point in points(load(EXAMPLES / "paths.yaml"))]
    paths = {e.transport.multipath.entry.name for e in its if e.transport.multipath}
    ports = {e.control.routing.adaptive.policy.entry.name for e in its if e.control.routing.adaptive}
    assert paths == {"flowbender.c", "plb", "round", "random", "reps", "bitmap"}
    assert ports == {"drill.c", "two_choices", "shortest", "round_robin", "random"}


def test_what_quality_and_flowlets_may_be_with(tmp_path: Path) -> None:
    for policy in ("random", "round_robin"):
        said = refused(tmp_path, policy=f"{policy}\n      quality: {{bands: 4}}")
        assert said.startswith(f"control.routing.adaptive.quality {policy} looks at no queues: quality changes nothing")
    bare, full = (
        loaded(tmp_path, policy=f"shortest\n      scope: {scope}") for scope in ("flowlet", "{flowlet: {gap: 2us}}")
    )
    assert bare.resolved() == full.resolved()
    assert "known: packet, flowlet, {flowlet: {..}}" in refused(tmp_path, policy="shortest\n      scope: flowlets")


# The examples against what their sources say

RANDOM = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
LOAD = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_uint32)


class Paths(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_double), ("line_rate", ctypes.c_double), ("mtu", ctypes.c_double),
        ("entropies", ctypes.c_uint32), ("timeouts", ctypes.c_uint32), ("sent", ctypes.c_uint64),
        ("acked", ctypes.c_uint64), ("delivered", ctypes.c_uint64), ("parameter", ctypes.POINTER(ctypes.c_double)),
        ("state", ctypes.c_void_p), ("entropy", ctypes.c_void_p), ("random", RANDOM),
    ]  # fmt: skip


class Returned(ctypes.Structure):
    _fields_ = [("entropy", ctypes.c_uint32), ("marked", ctypes.c_bool), ("took", ctypes.c_double)]


class Choice(ctypes.Structure):
    _fields_ = [
        ("now", ctypes.c_double), ("bytes", ctypes.c_double), ("ports", ctypes.c_uint32), ("turns", ctypes.c_uint32),
        ("port", ctypes.c_void_p), ("turn", ctypes.c_char_p), ("parameter", ctypes.POINTER(ctypes.c_double)),
        ("state", ctypes.c_void_p), ("set", ctypes.c_void_p), ("random", RANDOM), ("load", LOAD),
        ("flow", ctypes.c_void_p),
    ]  # fmt: skip


def example(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled(resolved(Name(name, ""), EXAMPLES))))


def moves_of_flowbender(threshold: float, rounds: int, acks: Sequence[tuple[int, bool]]) -> Iterator[bool]:
    """tcp-flow-bender.cc of ns3-load-balance (the authors of Hermes, SIGCOMM 2017), in packets: with each of (what has
    been sent, whether it was marked), in order, whether V becomes another."""
    total = marked = congested = 0
    high = 0
    for number, (sent, mark) in enumerate(acks, 1):
        total, marked = total + 1, marked + mark
        if number >= high:
            high = sent
            congested = congested + 1 if marked / total > threshold else 0
            yield congested >= rounds
            congested, total, marked = congested % rounds, 0, 0
        else:
            yield False


@pytest.mark.parametrize(("threshold", "rounds"), [(0.05, 1), (0.2, 1), (0.05, 3), (0.0, 2)])
def test_flowbender_moves_when_the_ns3_model_does(threshold: float, rounds: int) -> None:
    library, draw = example("flowbender.c"), random.Random(f"{threshold} {rounds}")
    entry = _Multipath.in_dll(library, "railbed_multipath")
    pick = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(entry.pick)
    _, on_return, _, on_timeout = entry.functions
    returned = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(on_return)
    timeout = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(on_timeout)
    state, values = ctypes.create_string_buffer(entry.state_bytes), (ctypes.c_double * 2)(threshold, rounds)
    its = Paths(entropies=64, parameter=values, state=ctypes.addressof(state))
    its.random = RANDOM(lambda _: draw.getrandbits(64))
    acks = [(k + draw.randrange(1, 40), draw.random() < (k // 500 % 3) * 0.1) for k in range(1, 5000)]
    expected, moved, taken = list(moves_of_flowbender(threshold, rounds, acks)), [], []
    for number, (sent, mark) in enumerate(acks, 1):
        before = pick(ctypes.addressof(its))
        its.sent, its.delivered = sent, number
        back = Returned(entropy=before, marked=mark)
        returned(ctypes.addressof(its), ctypes.addressof(back))
        taken.append(pick(ctypes.addressof(its)))
        moved.append(taken[-1] != before)
    assert moved == expected and 20 < sum(moved) < 1500
    assert set(taken) == set(range(64)) if sum(moved) > 500 else max(taken) < 64
    timeout(ctypes.addressof(its))
    assert pick(ctypes.addressof(its)) != taken[-1]


@pytest.mark.parametrize(("d", "m"), [(2, 1), (1, 1), (3, 2), (2, 0), (12, 3)])
def test_drill_takes_the_least_of_what_it_drew_and_what_was_least_before(d: int, m: int) -> None:
    """The authors' talk (SIGCOMM 2017): two random ports and the previously least loaded one; with d and m of them."""
    library, draw, ports = example("drill.c"), random.Random(f"{d} {m}"), 6
    entry = _Adaptive.in_dll(library, "railbed_adaptive")
    pick = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(entry.pick)
    state, values = ctypes.create_string_buffer(entry.set_bytes), (ctypes.c_double * 2)(d, m)
    turn = bytes([0, 1, 2, 3, 4, 5, 0])  # the first weighs 2
    its = Choice(ports=ports, turns=len(turn), turn=turn, parameter=values, set=ctypes.addressof(state))
    loads_of, drawn, kept, taken = [0.0] * ports, [], [], []
    its.random = RANDOM(lambda _: drawn.append(draw.getrandbits(64)) or drawn[-1])
    its.load = LOAD(lambda _, place: loads_of[place])
    for _ in range(2000):
        loads_of[:] = [draw.choice((0, 1, 2, 5, 9, 40)) for _ in range(ports)]
        drawn.clear()
        taken.append(pick(ctypes.addressof(its)))
        assert len(drawn) == d
        seen = list(dict.fromkeys([*kept, *(turn[number % len(turn)] for number in drawn)]))
        best = sorted(seen, key=lambda place: loads_of[place])  # of equals the one that was seen first
        assert taken[-1] == best[0]
        kept = best[:m]
    assert set(taken) == set(range(ports))


def test_the_header_says_what_is_read_here() -> None:
    header = (SOURCES / "plugin" / "railbed.h").read_text()
    for struct, kind in (("paths", Paths), ("returned", Returned), ("choice", Choice)):
        found = re.search(rf"struct railbed_{struct} \{{(.*?)\n\}};", header, re.S)
        assert found
        text = re.sub(r"/\*.*?\*/", "", found[1], flags=re.S)
        text = re.sub(r"\)\([^)]*\);", ");", text)  # what functions take
        fields = re.findall(r"\(\*(\w+)\)|[ *](\w+)(?=[,;])", text)
        names = [a or b for a, b in fields]
        assert names == [field[0] for field in kind._fields_]  # type: ignore[attr-defined]
