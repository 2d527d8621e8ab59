"""Congestion controls of users' own C files: read without running them, refused with their line, part of identities."""

from __future__ import annotations

import os
import re
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO

import pytest
from pydantic import ValidationError

from hardware.build import SOURCES
from hardware.cc import Setting
from results.figures.values import full
from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.overrides import override
from testbed.machine.processes import wait_for
from testbed.machines.identity import file_hashes, resolved_hash
from testbed.own import compiler, entry
from testbed.plan.hardware import hardware_of

HEADER = (SOURCES / "plugin" / "railbed.h").read_text()
EXAMPLE = Path(__file__).parents[2] / "experiments" / "own" / "theta-powertcp.c"
MINE = """#include "railbed.h"
{top}
static void acked(struct railbed_flow *flow, const struct railbed_ack *ack)
{{
	{what}
}}
RAILBED_CONTROL({version}, .hears = RAILBED_MARKS, {more} .acked = acked);
"""
PLAIN = {"top": "", "what": "flow->window = ack->rtt;", "version": "1", "more": ""}
GIVEN = '.parameters = {{"share", RAILBED_NUMBER, {%s}, 0, 1, "of what there is"}%s},'


def loaded(folder: Path, cc: str = "{file: mine.c}") -> Experiment:
    text = f"name: own\nfabric: {{topology: {{star: {{hosts: 3}}}}}}\ntransport:\n  cc: {cc}\n"
    return loads(text, "own.yaml", folder)


def write(folder: Path, **other: str) -> Path:
    (folder / "mine.c").write_text(MINE.format(**{**PLAIN, **other}))
    return folder


def refused(folder: Path, cc: str = "{file: mine.c}") -> str:
    with pytest.raises(InputError) as error:
        loaded(folder, cc)
    problem = error.value
    said = f"{problem.where.removeprefix('own.yaml:4: transport.cc')} {problem.what} ({problem.hint})"
    return re.sub(r"(mine\.c:\d+):\d+:", r"\1:", said.replace(f"{folder}/", ""))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"top": "#include <time.h>", "what": "flow->window = (double)time(NULL) * ack->rtt;"},
         "mine.c:5: time cannot be used here (railbed.h's and mathematical functions alone"),
        ({"top": "#include <stdlib.h>\n#include <stdio.h>", "what": 'printf("%d%g", rand(), ack->rtt);'},
         "mine.c:6: printf, rand cannot be used here"),
        ({"what": "flow->rate = (double)__builtin_ia32_rdtsc() + ack->rtt;"},
         "mine.c:5: __builtin_ia32_rdtsc cannot be used here (no assembler, and no clocks"),
        ({"top": "/* asm */", "what": 'long t = 0; __asm__ volatile("syscall" : "+a"(t)); flow->rate = t + ack->rtt;'},
         "mine.c:5: __asm__ cannot be used here"),
        ({"top": "static int calls;", "what": "flow->window = ack->rtt * calls++;"},
         "mine.c:2: calls would be kept outside its state (what is to be remembered stands in"),
        ({"top": '__attribute__((constructor)) static void first(void) { __asm__ volatile(""); }'},
         "mine.c: something in it runs before it is called (no constructors"),
        ({"top": "void _init(void);\nvoid _init(void) {}"},
         "mine.c: something in it runs before it is called (no constructors"),
        ({"top": '__attribute__((tls_model("initial-exec"))) static _Thread_local int x;', "what": "flow->rate = x++;"},
         "mine.c:2: x would be kept outside its state"),
        ({"what": "flow->rate = __TIME__[7];"}, 'mine.c:5: error: macro "__TIME__" might prevent reproducible builds'),
        ({"what": "flow->windw = ack->rtt;"}, "mine.c:5: error: 'struct railbed_flow' has no member named 'windw'"),
        ({"top": '#include "near.h"'}, "mine.c:2: fatal error: near.h: No such file"),
        ({"top": f'#include "{SOURCES}/base/units.h"'}, f"mine.c includes {SOURCES}/base/units.h (railbed.h"),
        ({"version": "3"}, "mine.c is written for version 3 of railbed.h, and this is 2 (RAILBED_CONTROL(2, ..)"),
        ({"version": "0"}, "mine.c is written for version 0 of railbed.h, and this is 2"),
        ({"more": ".state_bytes = 1025,"}, "mine.c: a flow's state has 1025 bytes (1024 at most)"),
        ({"more": GIVEN % ("5", "")}, "mine.c: parameter 0 (share): its default 5 is not from 0 to 1"),
        ({"more": GIVEN % ("0.5", ', {"share"}')}, "mine.c: parameter 1 (share) needs a name of its own"),
        ({"more": ".kmax = {1, RAILBED_BDP},"}, "mine.c: kmax is given without kmin and pmax (all three, or none)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, other: dict[str, str], said: str) -> None:
    assert refused(write(tmp_path, **other)).startswith(f".file {said}")


def test_what_is_no_such_file_or_parameter(tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text('#include "railbed.h"\nint other(void);\nint other(void) { return 1; }\n')
    assert "mine.c defines no railbed_control (it ends with RAILBED_CONTROL(2, ..)" in refused(tmp_path)
    assert "absent.c cannot be read: there is no such file" in refused(tmp_path, "absent.c")
    assert "'mine.py' is no C file" in refused(tmp_path, "{file: mine.py}")
    write(tmp_path, more=GIVEN % ("0.5", ""))
    assert refused(tmp_path, "{file: mine.c, share: 2}") == ".share share is from 0 to 1 ()"
    assert refused(tmp_path, "{file: mine.c, shore: 1}").startswith(".shore unknown parameter of mine.c 'shore'")
    written = {**loaded(tmp_path).written()}
    with pytest.raises(ValidationError, match="an algorithm from a file has no place here"):
        Experiment.model_validate(written, context={"directory": tmp_path, "own": False})  # as drills have it


def test_a_compiler_without_end_is_ended_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child holds a lock for as long as it lives; it is ours to take only when it is gone."""
    (tmp_path / "cc").write_text(f"#!/bin/sh\nexec 9>{tmp_path}/lock\nflock 9\n(while :; do :; done) & wait\n")
    (tmp_path / "cc").chmod(0o755)
    tmp_path.chmod(0o777)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setattr(compiler, "WALL_S", 0.5)
    monkeypatch.setattr(compiler, "caller", lambda: None)
    assert "the compiler does not come to an end" in refused(write(tmp_path, what="flow->rate = 2;"))
    with open(tmp_path / "lock", "w") as lock:
        assert wait_for(lambda: _taken(lock), 60)


def _taken(lock: IO[str]) -> bool:
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_names_compilers_and_masks_that_are_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a\nb").mkdir()
    assert "no path of a C file may have such characters" in refused(write(tmp_path / "a\nb"))
    assert "63 bytes at most" in refused(tmp_path, "{file: %s.c}" % ("l" * 62))
    monkeypatch.setenv("CC", "'")
    assert "CC=' is no command: No closing quotation" in refused(write(tmp_path, what="flow->rate = 3;"))
    monkeypatch.setenv("CC", "true")
    assert "the C compiler has left no includes" in refused(write(tmp_path, what="flow->rate = 4;"))
    monkeypatch.setenv("CC", "")
    monkeypatch.setattr(compiler, "_KEPT", tmp_path)
    before = os.umask(0o077)
    try:
        loaded(write(tmp_path, what=f"flow->rate = 5; /* {tmp_path} */"))
    finally:
        os.umask(before)
    (made,) = tmp_path.glob("*.so")
    assert made.stat().st_mode & 0o777 == 0o644


def test_a_warning_comes_with_the_users_file_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    compiler.compiled.cache_clear()
    write(
        tmp_path, what=f"int unused_{tmp_path.stat().st_mtime_ns};"
    )  # and neither argument is used: nobody chose them
    loaded(tmp_path)
    said = capfd.readouterr().err
    assert re.search(rf"{tmp_path}/mine\.c:5:\d+: warning: unused variable", said) and "parameter" not in said


def test_its_defaults_follow_the_fabric_and_its_marks_are_the_switches(tmp_path: Path) -> None:
    marks = ".kmin = {0.5, RAILBED_BDP}, .kmax = {1, RAILBED_BDP}, .pmax = 0.7,"
    rates = ', {"pace", RAILBED_RATE, {0.25, RAILBED_LINE_RATE}}, {"rtt", RAILBED_TIME, {2, RAILBED_BASE_RTT}}'
    experiment = loaded(write(tmp_path, more=marks + GIVEN % ("0.5", rates)), "{file: mine.c, share: 0.75}")
    hardware, entry = hardware_of(experiment), experiment.transport.cc.control
    params, setting = hardware.nic["cc"]["params"], Setting(100e9, 10_000, 4096)
    assert (params["share"], params["pace_bps"]) == (0.75, 100e9)
    assert hardware.nic["cc"]["algorithm"] == "mine.c" and hardware.own["controls"][0]["params"] == [
        "share",
        "pace_bps",
        "rtt_ns",
    ]
    assert entry.values(setting, {}) == {
        "share": 0.5, "pace": 25e9, "rtt": 20_000, "window": 2 * 125_000 + 32 * 4096, "min_rate": 100e6,
    }  # fmt: skip
    assert entry.marks is not None and entry.marks(setting) == (62_500, 125_000, 0.7)
    kmin = hardware.switch["ecn"]["3"]["kmin_bytes"]
    assert kmin == int(params["rtt_ns"] / 2 * 400 / 8 / 2) and entry.hears == ("marks",)


def test_another_content_is_another_point_and_a_changed_file_is_refused(tmp_path: Path) -> None:
    first = loaded(write(tmp_path), "./mine.c")
    resolved = first.resolved()["transport"]["cc"]["file"]
    assert re.fullmatch(rf"{tmp_path}/mine\.c#sha256:[0-9a-f]{{64}}", resolved)
    assert loaded(tmp_path, f"{{file: '{resolved}'}}").resolved() == first.resolved()
    assert list(file_hashes(first)) == [f"{tmp_path}/mine.c"] and first.transport.cc.short == "mine.c"
    write(tmp_path, what="flow->window = 2 * ack->rtt;")
    assert resolved_hash(loaded(tmp_path)) != resolved_hash(first)
    assert "mine.c is not the file that is meant" in refused(tmp_path, f"{{file: '{resolved}'}}")


def test_a_sweep_and_set_take_it_beside_ours(tmp_path: Path) -> None:
    write(tmp_path, more=GIVEN % ("0.5", ""))
    swept = [override(loaded(tmp_path, "none"), [f"transport.cc={cc}"]) for cc in ("dctcp", "{file: mine.c, share: 1}")]
    assert [e.transport.cc.control.name for e in swept] == ["dctcp", "mine.c"]
    assert full({"file": "./mine.c", "share": 1}) == "./mine.c share=1"
    assert full(swept[1].resolved()["transport"]["cc"]) == f"{tmp_path}/mine.c share=1"


def test_the_example_is_short_and_the_header_says_what_we_read() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 70
    assert loaded(EXAMPLE.parent, EXAMPLE.name).transport.cc.control.source.startswith("Addanki et al., NSDI 2022")
    numbers = dict(re.findall(r"#define RAILBED_(\w+) (\d+)", HEADER))
    ours = {n: getattr(entry, n) for n in ("VERSION", "PARAMETERS", "STATE_BYTES", "ENTROPY_BYTES", "SWITCH_BYTES")}
    assert numbers == {name: str(value) for name, value in ours.items()}
    of = re.search(r"enum railbed_of \{(.*?)\}", HEADER, re.S)
    assert of and len(re.findall(r"RAILBED_\w+", of[1])) == len(entry.OF)
