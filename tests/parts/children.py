"""A program that waits for what its children do; each line is what it waited for, and for how many microseconds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

began = time.monotonic()


def say(what: str) -> None:
    global began
    now = time.monotonic()
    print(what, round((now - began) * 1e5) * 10, flush=True)
    began = time.monotonic()


def forked(does: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        does()
        os._exit(0)
    return child


time.sleep(0.001)
say("slept")
subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(0.005)"], check=True)
say("a program")
subprocess.run(["true"], check=True)
say("one that knows no time")
subprocess.run(["sh", "-c", "sleep 0.002; sleep 0.003; echo"], stdout=subprocess.PIPE, check=True)
say("a shell")
os.system("sleep 0.004")
say("system")
os.popen("sleep 0.003; echo").read()
say("popen")
os.waitpid(forked(lambda: time.sleep(0.006)), 0)
say("fork")

out, to = os.pipe()


def writes() -> None:
    time.sleep(0.007)
    os.write(to, b"x")


child = forked(writes)
os.read(out, 1)
say("a pipe")
os.waitpid(child, 0)
say("and its end")

signal.signal(signal.SIGCHLD, lambda *_: None)
child = forked(lambda: time.sleep(0.002))
signal.pause()
say("a signal")
os.waitpid(child, 0)
say("its end was that")

for argv in sys.argv[1:]:
    sys.exit(subprocess.run(argv.split(), check=False).returncode)
