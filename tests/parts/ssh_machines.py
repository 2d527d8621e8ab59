"""Machines to reach by SSH: each has network, mount and pid namespaces of its own on this machine, and a real sshd.

They hang on a bridge in a network namespace of the test's own, `home`, where the command runs: nothing of it is in the
machine's own network. Whoever kills a machine kills everything on it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testbed.machine.ownership import control_group
from testbed.machine.teardown import remove_control_groups
from tests.parts.machine import ROOT, TESTBED, wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
NETWORK = "10.77.0"
_CONFIG = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
AllowTcpForwarding {forwarding}
SetEnv TMPDIR={folder}/tmp
"""


class Machine:
    """One machine; `kill` is its end, as if somebody had pulled the plug."""

    def __init__(self, cluster: SshMachines, number: int, *, forwarding: str = "yes", prepare: str = "true") -> None:
        self.address = f"{NETWORK}.{10 + number}"
        self.folder = cluster.folder / f"machine{number}"
        (self.folder / "tmp").mkdir(parents=True)
        _key(self.folder / "host_key")
        self.host_key = (self.folder / "host_key.pub").read_text().split(" ", 2)
        shutil.copy(cluster.key.with_suffix(".pub"), self.folder / "authorized_keys")
        config = self.folder / "sshd_config"
        config.write_text(_CONFIG.format(address=self.address, folder=self.folder, forwarding=forwarding))
        begin = (
            "mount -t tmpfs run /run && mkdir -p /run/sshd && ip link set lo up && read go && "
            f"{prepare} && exec {SSHD} -D -e -f {config}"
        )
        self._log = (self.folder / "log").open("w")
        self._outer = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", begin],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        wait_until(lambda: self._inner(), "the machine's first process")
        self.pid = int(self._inner()[0])
        wait_until(lambda: os.stat(f"/proc/{self.pid}/ns/net").st_ino != _own_net(), "its namespaces")
        near, far = f"sw{number}", "eth0"
        cluster.at_home("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(self.pid))
        cluster.at_home("ip", "link", "set", near, "master", "swbr", "up")
        self.inside("ip", "addr", "add", f"{self.address}/24", "dev", far)
        self.inside("ip", "link", "set", far, "up")
        assert self._outer.stdin is not None
        self._outer.stdin.write(b"go\n")
        self._outer.stdin.close()
        wait_until(lambda: "listening" in (self.folder / "log").read_text(), "sshd")
        self._run = os.open(f"/proc/{self.pid}/root/run/", os.O_RDONLY)  # outlives the machine

    def _inner(self) -> list[str]:
        with suppress(OSError):
            return Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        return []

    def inside(self, *command: str) -> str:
        """Runs a command on the machine; returns what it prints."""
        at = ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid"]
        return subprocess.run([*at, *command], check=True, capture_output=True, text=True, timeout=60).stdout

    def processes(self, of: str) -> list[int]:
        """Pids (as seen from outside) of its processes that have this in their command line."""
        ours = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if (
                    os.stat(f"/proc/{name}/ns/pid").st_ino == ours
                    and of.encode() in Path(f"/proc/{name}/cmdline").read_bytes()
                ):
                    found.append(int(name))
        return found

    def fabrics(self) -> list[str]:
        """What is left of fabrics there."""
        with suppress(FileNotFoundError):
            return os.listdir(f"/proc/self/fd/{self._run}/railbed")
        return []

    def folders(self) -> list[str]:
        """Temporary folders of sweeps there."""
        return [path.name for path in (self.folder / "tmp").glob("railbed-sweep-*")]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._outer.wait(60)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._outer.wait(60)
        self._log.close()
        self._forget_fabrics()

    def _forget_fabrics(self) -> None:
        """Control groups of fabrics that died with it are left: the kernel has those of all machines in one place."""
        errors: list[str] = []
        with suppress(FileNotFoundError):
            for fabric in os.listdir(f"/proc/self/fd/{self._run}/railbed"):
                remove_control_groups(control_group(fabric), errors)
        os.close(self._run)
        assert not errors, errors


class SshMachines:
    """The namespace `home`, a user's ~/.ssh there, and machines as they are asked for. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        self.key = self.home / ".ssh" / "id_ed25519"
        _key(self.key)
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        self._keeper.stdout.readline()
        for line in (
            "link set lo up",
            "link add swbr type bridge",
            f"addr add {NETWORK}.1/24 dev swbr",
            "link set swbr up",
        ):
            self.at_home("ip", *line.split())
        self.machines: list[Machine] = []

    def __enter__(self) -> SshMachines:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.close()
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stdout:
            self._keeper.stdout.close()

    def add(self, *, known: bool = True, forwarding: str = "yes", prepare: str = "true") -> Machine:
        machine = Machine(self, len(self.machines) + 1, forwarding=forwarding, prepare=prepare)
        self.machines.append(machine)
        if known:
            self.know(machine, machine)
        return machine

    def know(self, machine: Machine, key_of: Machine) -> None:
        """Notes in known_hosts that `machine` has this key."""
        with (self.home / ".ssh" / "known_hosts").open("a") as file:
            file.write(f"{machine.address} {' '.join(key_of.host_key[:2])}\n")

    def at_home(self, *command: str) -> None:
        subprocess.run(["nsenter", "-t", str(self._keeper.pid), "--net", *command], check=True, timeout=60)

    def file(self, text: str | None = None, **keys: object) -> Path:
        """A machines file of all machines, each with these keys."""
        path = self.folder / "machines.yaml"
        more = "".join(f", {key}: {value}" for key, value in keys.items())
        lines = [f"  - {{host: {m.address}, testbed: {ROOT}{more}}}\n" for m in self.machines]
        path.write_text(text if text is not None else "machines:\n" + "".join(lines))
        return path

    @contextmanager
    def begin(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """`testbed` at home, under way; killed if it is still there at the end."""
        env = {k: v for k, v in os.environ.items() if k != "SSH_AUTH_SOCK"} | {"HOME": str(self.home)}
        command = ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", *TESTBED, *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def testbed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`testbed` at home, to its end."""
        with self.begin(*arguments) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)


def _own_net() -> int:
    return os.stat("/proc/self/ns/net").st_ino
