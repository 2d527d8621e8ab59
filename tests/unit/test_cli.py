"""The frame of the command line: verbs are found, help is quick, errors have one form."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict

import click
import pytest
from click.testing import CliRunner

from testbed import __version__
from testbed.cli import cli
from tests.parts.trial_verb import ROOT, run, trial
from tests.parts.trial_verb import verb as verb

VERBS = sorted(p.stem for p in (ROOT / "testbed" / "commands").glob("*.py") if not p.stem.startswith("_"))
HEAVY = {"numpy", "pandas", "pyarrow", "pydantic", "networkx", "mininet", "os_ken", "ruamel", "rich", "paramiko"}


# --- help ------------------------------------------------------------------


def test_help_lists_every_verb_and_nothing_else():
    done = run("--help")
    assert done.returncode == 0
    _, *sections = re.split(
        r"^(?:Plan|Measure|Results|Fabric|Observe|Change|Learn|Machine):\n", done.stdout, flags=re.M
    )
    assert sorted(re.findall(r"^  (\w+)", "".join(sections), re.MULTILINE)) == VERBS
    assert len(sections) == 8 and "..." not in "".join(sections)
    assert all(len(line) < 80 for line in done.stdout.splitlines())


def test_help_of_show_is_whole_too():
    said = run("show", "--help").stdout.partition("Options:")[2]
    assert "..." not in said
    assert re.search(r"^  pfcwd config +Show when the PFC watchdog of a live fabric's\n +switches steps in", said, re.M)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("statsu", "No such command 'statsu'. Did you mean 'status'?"),
        ("show interfacse", "Did you mean 'interfaces' or"),
        ("show pf config", "Did you mean 'pfc'?"),
        ("zzz", "No such command 'zzz'.\n"),
        ("list", "No such command 'list'. `testbed status --all` does that."),
        ("logs --part ovs", "`testbed show logging --part` does that."),
        ("lsit", "No such command 'lsit'. `testbed status --all` does that."),
        ("pu", "No such command 'pu'. Did you mean 'up'?"),
        ("urn", "Did you mean 'run'"),
        ("drill resume", "No such command 'resume'. `testbed drill join` does that."),
        ("drill strat", "Did you mean 'start'"),
        ("plot busbw quickstart", "busbw is what to draw, and comes last: testbed plot quickstart busbw\n"),
        ("plot queue one two", "testbed plot one two queue\n"),
        ("plot one busb", "'busb' is not one of 'queue'"),
    ],
)
def test_an_unknown_command_is_answered_by_what_is_near(line, said):
    result = CliRunner().invoke(cli, line.split(), prog_name="testbed")
    assert result.exit_code == 2 and said in result.stderr


def test_a_word_that_is_shortened_is_as_the_whole_one() -> None:
    said = [
        CliRunner().invoke(cli, ["show", word, "--help"], prog_name="testbed").stdout for word in ("int", "interfaces")
    ]
    assert said[0] == said[1] and "counters trim" in said[0]


def _all(command, parent, name):
    ctx = click.Context(command, info_name=name, parent=parent)
    yield ctx
    for inner in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        yield from _all(command.get_command(ctx, inner), ctx, inner)


def test_no_usage_is_broken_within_a_word():
    for ctx in _all(cli, None, "testbed"):
        usages = []
        for width in (80, 10_000):
            formatter = click.HelpFormatter(width=width)
            ctx.command.format_usage(ctx, formatter)
            usages.append(" ".join(formatter.getvalue().split()))
        assert usages[0] == usages[1]


def test_the_page_of_commands_is_what_they_say():
    """In a process of its own: click remembers of a command how it was first called."""
    code = "from tests.commands_page import PAGE, as_markdown; raise SystemExit(PAGE.read_text() != as_markdown())"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0, "python -m tests.commands_page"


def test_status_of_no_fabric_is_a_list_of_none(run_dir):
    assert CliRunner().invoke(cli, ["status"]).stdout == "no fabrics\n"
    assert CliRunner().invoke(cli, ["status", "--all", "--json"]).stdout == '{"fabrics": []}\n'
    result = CliRunner().invoke(cli, ["status", "3f2a", "--all"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        2, "error: --all shows every fabric, ID and --where one of them")  # fmt: skip


def test_help_imports_nothing_heavy():
    code = "import sys; sys.argv[1:] = ['--help']\nfrom testbed.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    modules = done.stdout.partition("MODULES")[2].split()
    assert not {name.partition(".")[0] for name in modules} & HEAVY
    others = [name for name in modules if not name.startswith("testbed.commands.")]  # a verb has one of its own
    assert len(others) < 160  # click alone takes about 100; `./setup.sh bench` has the time


def test_what_commands_on_a_live_fabric_share_imports_no_graphs_and_no_tables():
    code = "import sys, testbed.fabric.lab, testbed.inject.live; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & (HEAVY - {"pydantic", "rich"})


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_help_with_examples(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"testbed {name}" in result.output.partition("Usage:")[2]
    assert "Example" in result.output
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.get_short_help_str(200).endswith((".", "?"))


def test_no_verb_shows_the_help_and_is_bad_input():
    done = run()
    assert done.returncode == 2
    assert "Machine:" in done.stderr + done.stdout


def test_version():
    """With the commit, of a checkout; tests/live/test_packaging.py has that of a package."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert run("--version").stdout.rstrip("\n").removesuffix("+changes)").removesuffix(")") in (
        f"testbed, version {__version__} ({head}",
        f"testbed, version {__version__}",
    )


# --- errors ----------------------------------------------------------------

RAISES = """\
from testbed.base.errors import Problem, UserError
raise UserError("no such [thing]", "e.yaml:3: a.b", "try another", exit_code=3, also=[Problem("and this", "e.yaml:9")])
"""


def test_user_error_as_text(verb):
    verb(RAISES)
    result = trial()
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: no such [thing]",
        "  at: e.yaml:3: a.b",
        "  hint: try another",
        "also: and this",
        "  at: e.yaml:9",
    ]


def test_user_error_as_json(verb):
    verb(RAISES)
    result = trial("--json")
    assert result.exit_code == 3
    assert result.stderr == ""
    assert json.loads(result.stdout) == {
        "error": {
            "what": "no such [thing]",
            "where": "e.yaml:3: a.b",
            "hint": "try another",
            "also": [{"what": "and this", "where": "e.yaml:9", "hint": ""}],
        }
    }


def test_long_errors_are_not_wrapped(verb):
    verb("from testbed.base.errors import UserError\nraise UserError('x' * 300)")
    assert trial().stderr == f"error: {'x' * 300}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["run", "--no-such-option"], ["doctor", "extra"]])
def test_wrong_usage_exits_with_2(arguments):
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert result.stdout == "" and "Usage:" in result.stderr

    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 2
    assert set(json.loads(result.stdout)["error"]) == {"what", "where", "hint"}


def test_json_after_two_dashes_is_not_for_us():
    assert CliRunner().invoke(cli, ["nonsense", "--", "--json"]).stdout == ""


def test_bad_experiment_file(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nfabric:\n  topology: {ring: {nodes: 4}}\n  cable: {rate: 400Gb}\n")
    done = run("run", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[:2] == [
        "error: 'Gb' is not a unit of rate",
        f"  at: {file}:4: fabric.cable.rate",
    ]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_operating_system_error(verb):
    verb("open('/no/such/file')")
    result = trial()
    assert result.exit_code == 1
    assert result.stderr == "error: No such file or directory\n  at: /no/such/file\n"


def test_what_an_ordinary_user_may_not_do_says_that_it_needs_root(verb, monkeypatch):
    verb("raise PermissionError(13, 'Permission denied', '/run/railbed')")
    assert trial().exit_code == 1  # root: something else is wrong
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = trial("--json")
    assert result.exit_code == 3
    error = json.loads(result.stdout)["error"]
    assert (error["what"], error["hint"].split()[0]) == ("needs root", "sudo")


def test_a_fifo_is_no_experiment_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    done = run("run", str(tmp_path / "fifo"))
    assert (done.returncode, "no ordinary file" in done.stderr) == (2, True)


# --- which fabric ----------------------------------------------------------

OF_A_FABRIC = (
    *("status", "status --where", "serve", "show logging", "down", "shell", "ovs ls", "clean", "exec 0 ls", "heal f1"),
    *("inject cable_down --on all", "job status", "job stop", "job start FILE", "run FILE", "show counters"),
    *("show faults", "show pfc", "show ecn", "show queues", "show qps", "show drops", "show interfaces status"),
    *("show job", "show ethtool 0", "advance 10us"),
)
ALONE = ("status", "status --where", "serve", "show logging", "down", "shell", "clean", "show faults", "show pfc",
         "show job", "job status", "job stop")  # fmt: skip


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    from testbed.machine import ownership

    monkeypatch.setattr(ownership, "RUN_DIR", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("line", OF_A_FABRIC)
def test_every_command_about_a_fabric_is_told_which_in_the_same_way(line, run_dir):
    words = [str(ROOT / "experiments/quickstart.yaml") if word == "FILE" else word for word in line.split()]
    at = 1 if words[0] in ("ovs", "exec") else len(words)  # what follows is the command to run
    result = CliRunner().invoke(cli, [*words[:at], "--fabric", "0bad", *words[at:]])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: there is no fabric 0bad")


@pytest.mark.parametrize("line", ALONE)
def test_the_id_alone_is_the_same_and_two_fabrics_are_one_too_many(line, run_dir):
    named = run_dir / "0bad"
    named.mkdir(parents=True)
    (named / "experiment.json").write_text('{"name": "live"}')
    result = CliRunner().invoke(cli, [*line.split(), "0bad", "--fabric", "0bed"])
    assert result.exit_code == 2
    assert (
        result.stderr == "error: two fabrics are named: 0bad and --fabric 0bed\n  at: command line\n  hint: name one\n"
    )
    result = CliRunner().invoke(cli, ["status", "0bed"])
    assert result.stderr == "error: there is no fabric 0bed\n  at: command line\n  hint: fabrics: 0bad (live)\n"


@pytest.mark.parametrize(
    ("by", "job", "what", "hint"),
    [
        ({"user": "alice"}, None, "alice has brought up fabric {id} (live), from HERE", "testbed down {id} takes it"),
        (
            {"checkout": "/srv/other"},
            None,
            "ME has brought up fabric {id} (live), from /srv/other",
            "testbed down {id}",
        ),
        ({}, "j3", "job j3 (ring) runs on fabric {id} (live)", "testbed job stop j3, or wait; testbed down {id} takes"),
        ({}, None, None, ""),
    ],
)
def test_down_without_an_id_is_for_ones_own_fabric_on_which_nothing_runs(run_dir, monkeypatch, by, job, what, hint):
    from testbed.machine import ownership
    from testbed.machine.lockfile import LockFile
    from testbed.machine.maker import Maker

    me = asdict(Maker.here())
    monkeypatch.setattr(Maker, "here", classmethod(lambda cls: cls(**{**me, **by})))
    record, journal, lock = ownership.create()
    journal.made({"fabricd": ownership.Process.of(os.getpid())})
    (record.dir / "experiment.json").write_text('{"name": "live"}')
    if job:
        (record.dir / "jobs").mkdir()
        (record.dir / f"jobs/{job}.json").write_text('{"state": "running", "name": "ring"}')
        running = LockFile(record.dir / "jobs" / "lock")
    monkeypatch.setattr(Maker, "here", classmethod(lambda cls: cls(**me)))
    taken = []
    monkeypatch.setattr("testbed.fabric.lab.take_down", lambda r: taken.append(r.id) or ownership.Removed(r.id))
    done = CliRunner().invoke(cli, ["down"])
    if what is None:
        assert (done.exit_code, done.stdout, taken) == (0, f"fabric {record.id} is down\n", [record.id])
    else:
        said = what.replace("HERE", me["checkout"]).replace("ME", me["user"])
        assert (done.exit_code, taken) == (2, []) and f"error: {said}\n".format(id=record.id) in done.stderr
        assert f"  hint: {hint}".format(id=record.id) in done.stderr
        assert CliRunner().invoke(cli, ["down", record.id]).exit_code == 0 and taken == [record.id]
    if job:
        running.release()
    lock.release()


def test_a_fabrics_id_in_place_of_a_jobs_means_the_fabric(run_dir):
    (run_dir / "0bad").mkdir(parents=True)
    assert CliRunner().invoke(cli, ["job", "status", "0bad"]).stdout == "fabric 0bad has had no job\n"
    assert CliRunner().invoke(cli, ["job", "stop", "0bad"]).stdout == "no job runs on fabric 0bad\n"


def test_inject_asks_which_fault_and_takes_the_fabric_before_it(run_dir):
    result = CliRunner().invoke(cli, ["inject", "--fabric", "0bad"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: which fault?")
    result = CliRunner().invoke(cli, ["inject", "--fabric", "0bad", "cable_down", "--on", "all"])
    assert result.stderr.startswith("error: there is no fabric 0bad\n")
    assert CliRunner().invoke(cli, ["inject", "--fabric", "0bad", "--list"]).exit_code == 0


def test_exec_takes_the_fabric_behind_the_rank_too(run_dir):
    for words in (["--fabric", "0bad"], ["--fabric=0bad"]):
        result = CliRunner().invoke(cli, ["exec", "0", *words, "--", "ls"])
        assert result.stderr.startswith("error: there is no fabric 0bad\n")
    assert "the command to run is missing" in CliRunner().invoke(cli, ["exec", "0", "--fabric", "0bad"]).stderr


# --- completion ------------------------------------------------------------


def asked_by_bash(*words: str) -> dict[str, str]:
    """What bash says when the last word is to be completed."""
    line = " ".join(["testbed", *words])
    return {"_TESTBED_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


def answers(printed: str) -> list[str]:
    return [answer.partition(",")[2] for answer in printed.splitlines()]


def completed(*words: str) -> list[str]:
    done = CliRunner().invoke(cli, [], prog_name="testbed", env=asked_by_bash(*words))
    assert done.stderr == ""
    return answers(done.stdout)


def test_the_shell_completes_verbs_files_faults_and_runs(tmp_path, monkeypatch):
    done = run(env={**os.environ, **asked_by_bash("p")})
    assert (set(answers(done.stdout)), done.stderr) == ({"plot", "predict", "probe"}, "")
    monkeypatch.chdir(ROOT)
    assert "experiments/quickstart.yaml" in completed("run", "")
    assert completed("inject", "burst") == ["burst_loss"]
    assert "--rate" in completed("inject", "loss", "--r")
    assert {"both", "forward", "backward"} == set(completed("inject", "loss", "--direction", ""))
    assert "--rate" not in completed("inject", "lossy", "-")
    (tmp_path / "results/runs/one").mkdir(parents=True)
    (tmp_path / "results/runs/one/state.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert completed("show", "run", "") == ["one"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_the_shell_is_printed(shell):
    done = run("completion", shell)
    assert done.returncode == 0 and "_TESTBED_COMPLETE" in done.stdout


def test_a_bug_keeps_its_traceback_and_json_stays_json(verb):
    verb("raise RuntimeError('oops')")
    result = trial()
    assert result.exit_code == 1
    assert "Traceback" in result.stderr and "oops" in result.stderr
    result = trial("--json")
    assert result.exit_code == 1
    assert "internal error: RuntimeError: oops" in json.loads(result.stdout)["error"]["what"]
    assert "Traceback" in result.stderr
