"""Proof: of a drill's truth nothing can be reached before the end, by no way but what its views show.

`./setup.sh prove drill-leaks [DRILL..]`, of all drills if none is named. Each is started twice from one seed: with its
faults, and as its healthy twin. Of both is taken every byte that a player can get at: all views and tools with their
options, help, completion, errors, what the page asks for, files of the fabric's directory, what /proc says of all its
processes (arguments, environment, names, open files), what its containers mount. Nothing of that may name a fault as
one: `inject`, a fault's id, the drill's file. Where a class's name stands more often than in the healthy twin, an
operator must call the thing so. What is no view has to be the same in both, and the player who looks for nothing but
traces (`traces`) has to say the same of both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drills.play.client import Remote, start
from drills.registry import lines
from drills.sheet import file
from drills.sheet.case import Case
from drills.sheet.drill import Drill
from drills.solve.traces import about, traces
from testbed.base.errors import UserError
from testbed.faults import CATALOGUE
from testbed.machine import ownership, processes
from testbed.machine.mounts import CHECKOUT
from testbed.serve.student import Student
from testbed.words.kinds import FLAG

SEED = "7Q4"
ERRORS = ("show nothing", "show faults", "inject loss", "heal all", "report", "submit nonsense@nowhere", "truth", "")
COMPLETED = ("", "s", "show ", "config ", "help ", "show interfaces ", "hint ")
ALL_CLASSES = ("classes", "help submit", "page about")
"""These have every class, always."""
AN_OPERATORS_WORDS = {"meter", "loop", "miswired"}
_FOUND = rb'inject(?!or|": \[\])|"fault|\bfault [a-z]?\d|"w\d+(?:[./]\d+)?"|\bdrills/catalogue'
_OWN = (
    "controller.log", "controller.out", "fabricd.log", "ovs-vswitchd.log", "ovsdb-server.log", "conf.db", "sealed",
)  # fmt: skip
"""What differs from one start to the next (Open vSwitch writes down when it had to wait for the machine), or is what a
controller sees of the world: only searched."""
_PROCESSES = {"controller_dead", "controller_hung", "worker_killed", "cpu_quota"}
"""Their cause is what a process is like: who looks at that has found the fault, and no trace of it."""

Bytes = dict[str, bytes]


@contextmanager
def served(drill: Drill, healthy: bool) -> Iterator[Remote]:
    with tempfile.TemporaryDirectory(prefix="rbleaks-") as folder:
        session = start(drill, SEED, healthy=healthy, out=str(Path(folder, "game.log")))
        try:
            yield session
        finally:
            session.close()


def views(session: Remote) -> Bytes:
    """Whatever shows the world: it may differ."""
    shown = {}
    for line in _looks():
        answer = session.command(line)
        shown[line] = json.dumps(answer.to_dict()).encode()
    shown["page figures"] = json.dumps(Student(session).figures()).encode()
    return shown


def _looks() -> Iterator[str]:
    for words, line in lines().items():
        if words.startswith("show ") or line.entry.parameters and line.acts and words.startswith(("probe", "capture")):
            for example in line.entry.examples:
                yield example
                for option in line.entry.parameters:
                    if option.option and option.kind is FLAG:
                        yield f"{example} {option.flag}"
                    elif option.option and option.name == "changed":
                        yield f"{example} {option.flag} 100us"


def told(session: Remote) -> Bytes:
    """What is said of the drill, its lines and their mistakes."""
    said: dict[str, Any] = {"ticket": session.ticket(), "classes": session.command("classes").to_dict()}
    said["page about"] = Student(session).about()
    said["state"] = {key: value for key, value in session.state().items() if key != "steps"}
    for words in lines():
        said[f"help {words}"] = session.command(f"help {words}").to_dict()
    for line in ERRORS:
        said[f"error {line}"] = session.command(line).to_dict()
    for line in COMPLETED:
        said[f"completion {line}"] = session.complete(line)
    return {name: json.dumps(one).encode() for name, one in said.items()}


def lying_about(fabric: str) -> Bytes:
    """Files of the fabric, and what its processes were told."""
    record = next(record for record in ownership.fabrics() if record.id == fabric)
    found = {}
    for path in record.dir.rglob("*"):
        with suppress(FileNotFoundError):  # it has gone since it was listed
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(record.dir))] = path.read_bytes()
    known = {process: name for name, process in {**record.processes, "drilld": record.owner}.items() if process}
    count: Counter[str] = Counter()
    for process in sorted({*known, *processes.belonging(record.mark, ())}, key=lambda one: one.pid):
        there = about(process.pid)
        name = known.get(process) or there.get("comm", "").strip()
        count[name] += 1
        for what, text in there.items():
            found[f"process {name} {count[name]}: {what}"] = text.encode()
    return found


def mounted(there: Mapping[str, bytes]) -> Iterator[str]:
    """Folders of the checkout that tell of drills, and that a container sees."""
    for name, content in there.items():
        if not name.endswith("config.json"):
            continue
        for mount in json.loads(content).get("mounts", ()):
            source = Path(str(mount.get("source", "")))
            for folder in ("drills", "results", "testbed"):
                if source.is_absolute() and (CHECKOUT / folder).is_relative_to(source):
                    yield f"{name}: {source} has {folder}/"


def leaks(drill: Drill) -> list[str]:
    """What is wrong with one drill."""
    with served(drill, healthy=False) as sick, served(drill, healthy=True) as well:
        one, other = _all_of(sick), _all_of(well)
        claims = [traces(twin) for twin in (sick, well)]
    if _PROCESSES & {str(entry["fault"]) for entry in drill.faults}:
        for twin in (*one.values(), *other.values()):
            for name in [name for name in twin if name.startswith("process ")]:
                del twin[name]
    found = [f"who looks for traces alone says {claims[0]}, of the healthy twin {claims[1]}"] * (claims[0] != claims[1])
    for what, there in one.items():
        for name, content in there.items():
            twin = other[what].get(name, b"")
            found += [f"{what}: {name}: {leak}" for leak in _named(drill, what, name, content, twin)]
            if name == "sealed" and len(content) != len(twin):
                found.append(f"{what}: {name}: its length tells the healthy twin from the other")
            if what != "views" and Path(name).name not in _OWN and _plain(name, content) != _plain(name, twin):
                only = {*_plain(name, content)} ^ {*_plain(name, twin)}
                found.append(f"{what}: {name}: differs from the healthy twin's: {sorted(only)[:4]}")
        missing = other[what].keys() ^ there.keys()
        found += [f"{what}: {name}: is there in one of the twins alone" for name in sorted(missing)]
    return found


def _all_of(session: Remote) -> dict[str, Bytes]:
    fabric = session.fabric
    before = lying_about(fabric)
    found = {"said": told(session), "files before": before, "views": views(session), "files": lying_about(fabric)}
    assert not (seen := [*mounted(before)]), seen
    own = fabric.encode()  # which may look like a fault's: e123
    return {
        what: {_plain_name(name, fabric): content.replace(own, b"ID") for name, content in there.items()}
        for what, there in found.items()
    }


def _plain_name(name: str, fabric: str) -> str:
    return re.sub(r"[0-9a-f]{6,}|\d{2,}", "N", name.replace(fabric, "ID"))  # hex first: it may begin with digits


def _named(drill: Drill, what: str, name: str, content: bytes, twin: bytes) -> Iterator[str]:
    content = content.replace(bytes(CHECKOUT), b"")  # wherever that is, and whatever it is called
    every = [*re.finditer(_FOUND, content)]
    stem = drill.id.rpartition("/")[2]
    for called in (drill.id, *([stem] if "-" in stem else [])):  # `storm` is a word like any other
        every += re.finditer(re.escape(called.encode()), content)
    if what == "said" and name in (*ALL_CLASSES, "error inject loss", "error report"):
        every = [match for match in every if match[0] not in (b"inject",)]
    for match in every[:3]:
        yield f"...{content[max(0, match.start() - 60) : match.end() + 60]!r}..."
    if what == "said":
        return
    for kind in sorted({str(entry["fault"]) for entry in drill.faults}):
        operators = {CATALOGUE[kind].shows_as, *AN_OPERATORS_WORDS}
        word = rb"\b" + kind.encode() + rb"\b"
        if kind not in operators and len(re.findall(word, content)) > len(re.findall(word, twin)):
            yield f"says {kind}"


def _plain(name: str, content: bytes) -> list[bytes]:
    """Without what is another one each time: ids, marks, times, in an order that does not matter."""
    content = re.sub(
        rb"[0-9a-f]*ID[0-9a-f]+|[0-9a-f]+ID|(?<=[\[ ])ID(?=[],])", b"0", content
    )  # it stood in a number, by chance
    if name.startswith("process "):
        content = re.sub(rb"\[\d+\]|RAILBED_FABRIC=[^\0]*", b"", content)
    elif b"\0" in content:
        return []  # no text: only searched
    text = re.sub(rb"[0-9a-f]{4,}", b"N", content)
    return sorted({re.sub(rb"[\d.]+", b"N", line) for line in re.split(rb"[\n\0]", text)})


def prove(names: list[str], say: Callable[[str], None] = print) -> dict[str, list[str]]:
    """What leaks, by drill."""
    found = {}
    for number, name in enumerate(names, 1):
        drill = file.load(name)
        if not drill.faults:
            continue
        try:
            Case.of(drill, SEED, False)
            wrong = leaks(drill)
        except UserError as error:
            wrong = [str(error)]
        found[name] = wrong
        say(f"{number:3} of {len(names)}: {name}: {f'{len(wrong)} leaks' if wrong else 'nothing leaks'}")
        for one in wrong[:12]:
            say(f"      {one}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove drill-leaks", description=__doc__)
    parser.add_argument("drills", nargs="*", metavar="DRILL")
    options = parser.parse_args()
    compared = options.drills or file.catalogue()
    going = [name for name in compared if file.load(name).on_real_clock]
    if going:
        print(f"left out, as no two worlds on the real clock are the same: {', '.join(going)}")
    found = prove([name for name in compared if name not in going])
    if not found:
        sys.exit("prove drill-leaks: no drill is left to compare")
    if wrong := sum(map(bool, found.values())):
        sys.exit(f"prove drill-leaks: {wrong} of {len(found)} drills leak")
    print(f"{len(found)} drills, each beside its healthy twin: nothing of the truth can be reached")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.chdir(CHECKOUT)
    main()
