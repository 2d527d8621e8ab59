"""The command line's process: signals end it cleanly, its output is whole, and it ends with its code."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.parts.trial_verb import ROOT, main_with
from tests.parts.trial_verb import verb as verb

SLEEPS = """\
import sys, time
from pathlib import Path
here = Path(__file__).parent
try:
    (here / "started").touch()
    for _ in range(6000):  # in pieces: a signal just before a sleep does not end it
        time.sleep(0.01)
finally:
    (here / "put-back").touch()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_put_everything_back(verb, tmp_path, number, code):
    verb(SLEEPS)
    with subprocess.Popen(
        [*main_with(tmp_path), "trial"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == code
    assert (tmp_path / "put-back").exists()
    assert "Traceback" not in stderr


def test_under_nohup_a_hangup_is_ignored(verb, tmp_path):
    verb("import signal\nclick.echo(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)")
    done = subprocess.run(
        ["nohup", *main_with(tmp_path), "trial"], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.stdout == "True\n"


def test_a_reader_that_leaves_early_gives_no_traceback():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "doctor", "--json"], stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.close(write)
    assert "Traceback" not in done.stderr


def test_the_process_ends_with_its_code_and_all_output_once_others_have_tidied_up(tmp_path: Path):
    verb = """
        import atexit, os, sys, threading, time, click
        class Left:
            def __del__(self, write=os.write):
                write(1, b"taken apart")
        left = Left()
        def later():
            time.sleep(0.05)
            print("a thread has ended")
        @click.command()
        def command():
            atexit.register(print, "tidied up")
            threading.Thread(target=later).start()
            sys.exit(7)
    """
    (tmp_path / "trial.py").write_text(dedent(verb))
    done = subprocess.run([*main_with(tmp_path), "trial"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (7, "a thread has ended\ntidied up\n")


def test_without_a_stdout_it_ends_as_ever(tmp_path: Path):
    (tmp_path / "trial.py").write_text("import click\n\n@click.command()\ndef command():\n    pass\n")
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"]
    done = subprocess.run([*shell, *main_with(tmp_path), "trial"], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


INTERRUPTED_AT = """
import os, signal, sys

class AsIfTyped:  # Ctrl-C, whenever one of these is imported
    def find_spec(self, name, *_):
        if name in MODULES:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AsIfTyped())
sys.argv[1:] = ["doctor"]
from testbed.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("modules", "code", "said"),
    [
        (["click"], -signal.SIGINT, ""),
        (["testbed.commands.doctor"], 130, "\nerror: interrupted\n"),
        (["testbed.commands.doctor", "rich.console"], 130, "\n"),
    ],
    ids=["while it is imported", "in a command", "again while that is told"],
)
def test_ctrl_c_at_any_moment_shows_nothing_of_python(modules: list[str], code: int, said: str):
    script = INTERRUPTED_AT.replace("MODULES", repr(modules))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (code, said, "")
