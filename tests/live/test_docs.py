"""Every example of every --help, of the README and of docs/ works as it is printed, and every link leads somewhere.

Examples run in a folder like a checkout that has one run of each kind, against one live fabric of the quickstart. They
run in this process, which saves a second each; what has a pipe or becomes another program runs in a shell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from testbed.base import yaml_reader
from testbed.cli import cli
from testbed.experiment import loads
from testbed.fabric import lab
from testbed.machine import ownership
from testbed.machines.where import where
from testbed.run import run, sweep
from testbed.tune import search
from testbed.world import keeper
from tests.parts import doc_examples as examples
from tests.parts.doc_examples import PAGES, ROOT, Example

# In help texts and `sh` blocks these are not run but checked: options, the file, all values that are set.
# (In `console` blocks they do run, and what they print is compared.)
TOO_LONG = {"run", "bench", "tune", "up"}

# Checked for their options only, each for a reason.
NOT_RUN = {
    "testbed down": "would take away the fabric of the next example; the tutorial's `down` is a real one",
    "testbed clean": "likewise",
    "testbed doctor --fix": "installs packages; tests/unit/test_doctor_fix.py does so with an apt-get of its own",
    "testbed advance": "only a held fabric's clock goes on; docs/held.md has one",
    "testbed show job": "likewise",
    "testbed show cpu": "needs the real clock; tests/live/test_drill_real.py has it",
    "testbed probe ping": "likewise",
    "testbed probe iperf3": "likewise",
    'testbed exec --all -- "': "needs the real clock and PyTorch; tests/live/test_programs.py runs it",
    "experiments/programs/mpirun.sh": "likewise, and Open MPI",
    "-- ib_": "wait for each other; tests/live/test_rdma_programs.py runs them",
    "-- rping": "likewise; tests/fabricd/test_connection_manager.py does",
    "-- ucx_perftest": "likewise; tests/live/test_rdma_programs.py runs them",
    "experiments/clusters/wrong.yaml": "takes long; tests/unit/test_library_slow_cable.py predicts a slow cable",
    "experiments/topology/all-nics.yaml": "takes long; tests/unit/test_rails.py holds the same to nine tenths",
    "ops.json": "measures this machine for long; tests/unit/test_calibrate_ops.py has a quick one",
    "-m testbed.calibrate.measure_ops": "likewise",
    "testbed drill": "its world goes on beside the next examples; tests of drills play it",
    "testbed job": "goes on in the background, beside the next examples; tests of jobs run them",
    "testbed serve": "goes on until Ctrl-C",
    "--watch": "goes on until Ctrl-C",
    "tcpdump": "goes on until Ctrl-C",
    "source": "is the shell's own; what it reads is the output of the example beside it",
}

# Runs that an example makes but takes too long to, and the tutorial's run that stands in when it is drawn.
STAND_INS = {
    "quickstart": "first", "fairness": "lossy", "incast": "recovery", "before": "first", "after": "first",
    "back": "first", "selective": "first",
}  # fmt: skip

# Where a part of an experiment stands in a page: what it is a part of.
QUICKSTART = yaml_reader.read((ROOT / "experiments" / "quickstart.yaml").read_text()).data

WRAPPER = """\
#!{python}
import os
from testbed.machine import ownership
from testbed.machines.where import where
every = ownership.fabrics
ownership.fabrics = lambda: [record for record in every() if record.id in os.environ["OURS"].split()]
from testbed.cli import main
main()
"""


class Checked(BaseException):
    """All that a command line says is right, and the work would begin. No Exception, for commands catch these."""


_BEGINNINGS = ((run, "run"), (sweep, "run_sweep"), (search, "tune"), (lab.Lab, "up"), (keeper, "keep"))


def _checked(*_: object, **__: object) -> None:
    raise Checked


class Desk:
    """A folder like a checkout, and the fabrics that examples have brought up: the only ones that they see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours: list[str] = []
        self.fault = ""
        self.done: dict[tuple[str, ...], tuple[str, Path]] = {}  # runs: what was printed, and the folder
        self.predicted: dict[tuple[str, ...], str] = {}
        shutil.copytree(ROOT / "experiments", folder / "experiments")
        (folder / "machines.yaml").write_text("machines: [{local: 2}]\n")  # docs/machines.md writes its own
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        (programs / "testbed").write_text(WRAPPER.format(python=sys.executable))
        (programs / "testbed").chmod(0o755)

    def type_in(self, line: str) -> str:
        """Runs a line as printed; what came out, errors last. Fails if it does not end with 0."""
        line = self.with_names(re.sub(r"\s+# .*", "", line))
        words = shlex.split(line, comments=True)
        if re.search(r"[|><;&$`]", re.sub(r"'[^']*'|\"[^\"]*\"", "", line)) or words[:2] in (
            ["testbed", "exec"], ["testbed", "ovs"], ["testbed", "shell"],
        ) or words[0] != "testbed":  # fmt: skip
            return self._in_a_shell(line)
        if words[1] in ("run", "bench"):
            return self._run(words[1:])
        if words[1] == "predict":
            return self._predict(words[1:])
        return self._in_this_process(words[1:])

    def with_names(self, line: str) -> str:
        """3f2a stands for the fabric's id, f1 for the fault's."""
        line = re.sub(r"\b3f2a\b", self.ours[-1] if self.ours else "3f2a", line)
        return re.sub(r"\bf1\b", self.fault or "f1", line)

    def _run(self, words: list[str]) -> str:
        """A run with the same words but its folder is not made twice."""
        out = next((words[i + 1] for i, word in enumerate(words) if word == "--out"), "")
        key = tuple(word for word in words if word not in ("--out", out))
        if key not in self.done:
            printed = self._in_this_process(words)
            match = re.search(r"Run folder\s*: (\S+)", printed)
            assert match, printed
            self.done[key] = (printed, self.folder / match[1])
        printed, folder = self.done[key]
        if out and not (self.folder / out).exists():
            shutil.copytree(folder, self.folder / out)
        return printed.replace(str(folder.relative_to(self.folder)), out) if out else printed

    def _predict(self, words: list[str]) -> str:
        """What several pages ask is predicted once, too."""
        key = tuple(words)
        if key not in self.predicted:
            self.predicted[key] = self._in_this_process(words)
        return self.predicted[key]

    def _in_this_process(self, words: list[str]) -> str:
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}{done.exception or ''}"
        if match := re.match(r"fabric (\w+) is up", done.stdout):
            self.ours.append(match[1])
        if words[0] == "inject" and (match := re.match(r"(?:\{\"id\": \")?(f\d+)", done.stdout)):
            self.fault = match[1]
        return self._plain(done.stdout)

    def _in_a_shell(self, line: str) -> str:
        path = f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "OURS": " ".join(self.ours), "PYTHONPATH": str(ROOT)}
        command = ["bash", "-o", "pipefail", "-c", line]
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return self._plain(done.stdout)

    def _plain(self, text: str) -> str:
        """As a page has it: paths from the folder on, and 3f2a for the fabric."""
        text = text.replace(f"{self.folder}/", "")
        return re.sub(rf"\b({'|'.join(self.ours)})\b", "3f2a", text) if self.ours else text

    def check(self, words: list[str]) -> None:
        """What `testbed WORDS` asks for can be done: its options, its file, and the values that it sets."""
        words = [word.replace("$PWD", str(self.folder)) for word in words]  # as a shell does
        if words[0] not in TOO_LONG or "--fabric" in words:
            command, rest, context = cli, words, click.Context(cli, info_name="testbed")
            while isinstance(command, click.Group):
                below = command.get_command(context, rest[0])
                assert below is not None, f"no such command: {shlex.join(words)}"
                command, rest = below, rest[1:]  # type: ignore[assignment]
            command.make_context(words[0], list(rest), parent=context)
            return
        with pytest.MonkeyPatch.context() as patch:
            for module, name in _BEGINNINGS:
                patch.setattr(module, name, _checked)
            with pytest.raises(Checked):
                done = CliRunner().invoke(cli, words)
                pytest.fail(f"{shlex.join(words)}\n{done.output}")

    def close(self) -> None:
        for record in [r for r in ownership.fabrics() if r.id in self.ours]:
            lab.take_down(record)
        self.ours.clear()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk").resolve())
    every = ownership.fabrics
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk.folder)
        patch.setenv("HOME", str(desk.folder))  # `completion --install` writes there
        patch.setenv("COLUMNS", "200")
        patch.setattr(ownership, "fabrics", lambda: [record for record in every() if record.id in desk.ours])
        try:
            yield desk
        finally:
            patch.undo()
            desk.close()


@pytest.fixture(scope="module")
def tutorial(desk: Desk) -> dict[str, str]:
    """The tutorial typed in from beginning to end: what did not come out as printed, by its place."""
    wrong: dict[str, str] = {}
    _page(desk, ROOT / "docs" / "tutorial.md", wrong)
    runs = desk.folder / "results" / "runs"
    for name, other in STAND_INS.items():
        (runs / name).symlink_to(runs / other)
    return wrong


@pytest.fixture
def live(desk: Desk, tutorial: dict[str, str]) -> Desk:
    """With one fabric of the quickstart up, a fault in it, and the tutorial's runs."""
    if len(ownership.fabrics()) != 1:
        desk.close()
        desk.type_in("testbed up experiments/quickstart.yaml")
        desk.type_in("testbed inject loss --on cable:h0.0-rail0 --rate 0.01")
    return desk


def _page(desk: Desk, page: Path, wrong: dict[str, str]) -> None:
    """Types in a page from beginning to end. A YAML block that begins with `# NAME.yaml` is saved as that."""
    for block in examples.blocks(page):
        if block.language.startswith("yaml") and (match := re.match(r"# (\S+\.yaml)$", block.lines[0])):
            (desk.folder / match[1]).write_text(block.text)
        for example in examples.in_block(block) if block.language in ("console", "sh") else []:
            if block.language == "console":
                _compare(desk, example, wrong)
            else:
                _try(desk, example)


def _compare(desk: Desk, example: Example, wrong: dict[str, str]) -> None:
    try:
        printed = desk.type_in(_setup_run(example.line))
    except AssertionError as error:
        wrong[example.place] = str(error)
        return
    if example.expected and (missing := examples.as_expected(example.expected, printed.splitlines())):
        wrong[example.place] = f"{example.line}\n  not there: {missing}\n{printed}"


def _setup_run(line: str) -> str:
    """`./setup.sh run` sets up, which has been done, and then is this."""
    return line.replace("./setup.sh run", "testbed run experiments/quickstart.yaml")


def _skipped(line: str) -> str:
    """Why a line is not run, or empty."""
    return next((why for what, why in NOT_RUN.items() if line.startswith(what) or f" {what}" in line), "")


def _try(desk: Desk, example: Example) -> None:
    line = desk.with_names(example.line)
    words = shlex.split(line, comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("|", ">", "<")), len(words))]
    if words[0] == "./setup.sh":
        assert f"\n    {words[1]})" in (ROOT / "setup.sh").read_text(), f"{example.place}: {line}"
    elif words[0] == "testbed" and (words[1] in TOO_LONG or _skipped(line)):
        desk.check(words[1:])
    elif not _skipped(line):
        desk.type_in(line)


# --- the tutorial, and what pages print --------------------------------------


def test_the_tutorial_gives_what_it_says(tutorial: dict[str, str]) -> None:
    assert not tutorial, "\n".join(f"{place}: {what}" for place, what in tutorial.items())


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "tutorial.md"], ids=lambda page: page.name)
def test_what_a_page_tells_to_type_works(page: Path, live: Desk) -> None:
    if "\n$ testbed up " in page.read_text():
        live.close()  # it brings up its own
    wrong: dict[str, str] = {}
    _page(live, page, wrong)
    assert not wrong, "\n".join(f"{place}: {what}" for place, what in wrong.items())


HELP = {name: examples.in_help(name, command) for name, command in examples.commands()}


@pytest.mark.parametrize("name", [name for name, found in HELP.items() if found])
def test_the_examples_of_a_help_work(name: str, live: Desk) -> None:
    for example in HELP[name]:
        _try(live, example)


def test_every_verb_has_examples() -> None:
    assert not [name for name, found in HELP.items() if not found and len(name.split()) == 2]


# --- parts of pages ----------------------------------------------------------


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "commands.md"], ids=lambda page: page.name)
def test_what_is_typed_stands_in_a_marked_block(page: Path) -> None:
    """Else nobody would try it. (docs/commands.md is the help, whose examples are typed as HELP.)"""
    lines = [(number, line) for number, line in examples.prose(page) if line.startswith("    ")]
    for block in examples.blocks(page):
        if block.language not in ("console", "sh"):
            lines += [(block.line, line) for line in block.lines]
    assert not [f"{number}: {line}" for number, line in lines if examples.TYPED.match(line)]


def _merged(part: dict[str, Any]) -> dict[str, Any]:
    """An experiment that has a part of a page in it. A fabric of the part's own has nothing of the quickstart's."""
    whole = json.loads(json.dumps(QUICKSTART))
    if "topology" in (fabric := part.get("fabric") or {}):
        whole["fabric"] = fabric
    whole["fabric"] |= fabric
    return whole | {key: value for key, value in part.items() if key != "fabric"}


YAML = [block for page in PAGES for block in examples.blocks(page) if block.language == "yaml"]


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_yaml_of_a_page_is_right(block: examples.Block, desk: Desk) -> None:
    part = yaml_reader.read(block.text).data
    whole = block.text if {"name", "fabric"} <= set(part) else json.dumps(_merged(part))
    loads(whole, block.place, ROOT / "experiments" / "control")  # where the applications are that pages name


MACHINES = [block for page in PAGES for block in examples.blocks(page) if block.language == "yaml machines"]


@pytest.mark.parametrize("block", MACHINES, ids=lambda block: block.place)
def test_machines_of_a_page_are_right(block: examples.Block, tmp_path: Path) -> None:
    (tmp_path / "machines.yaml").write_text(block.text)
    assert where(str(tmp_path / "machines.yaml")).others


PYTHON = [block for page in PAGES for block in examples.blocks(page) if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_python_of_a_page_runs(block: examples.Block, live: Desk) -> None:
    exec(compile(block.text, block.place, "exec"), vars(SimpleNamespace()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for number, line in examples.prose(page):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            if not there.exists() or (anchor and anchor not in examples.anchors(there)):
                dead.append(f"{page.name}:{number}: {target}")
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    folders = "experiments|tests|hardware|workloads|controllers|testbed|results|topologies|docs"
    named = re.findall(rf"\b((?:{folders})/[\w/.-]+\.(?:py|c|h|md|yaml))\b", page.read_text())
    makes = re.findall(r"^`([\w/.]+)`:\n```(?:py|c)$", page.read_text(), re.MULTILINE)  # examples: test_extending.py
    assert not [name for name in named if name not in makes and not (ROOT / name).exists()]


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert not [page.name for page in PAGES if page.name != "README.md" and f"{page.name})" not in index]


def test_commands_in_the_text_exist() -> None:
    """`testbed VERB --option` in a line: the verb, and its options."""
    wrong = []
    known = dict(examples.commands())
    for page in PAGES:
        for text in re.findall(r"`testbed ([^`]+)`", page.read_text()):
            words = text.replace("\\|", "|").split()
            if not re.fullmatch(r"[a-z]+", words[0]):
                continue
            name = next((n for n in (" ".join(["testbed", *words[:k]]) for k in (3, 2, 1)) if n in known), None)
            options = {o for p in known[name].params for o in p.opts} | {"--help"} if name else set()
            before = words[: words.index("--")] if "--" in words else words
            if name in ("testbed ovs", "testbed exec"):  # options behind are those of the program
                before = before[:2]
            asked = {word for word in before if word.startswith("-")}
            if name is None or (name != "testbed inject" and not asked <= options):
                wrong.append(f"{page.name}: testbed {text}")
    assert not wrong
