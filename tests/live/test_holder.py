"""The program that holds a fabric's namespaces, spoken to as bringup does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric.bringup import HOLDER
from testbed.machine.processes import Process, wait_for

IDS = 0x7FFF_0000 - 65536
MAC = "02:00:0a:00:00:07"
LINK = {"name": "nic", "mac": MAC, "mtu": 4096, "ip": "10.0.0.7", "prefix": 16}
ROUTE = "route add 10.0.0.0/8 dev nic src 10.0.0.7 table 100\n"
Ask = Callable[[Any], Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """A holder in a namespace of its own: asks it, and returns the answer."""
    with subprocess.Popen([str(HOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:

        def ask(question: Any) -> Any:
            assert holder.stdin is not None
            assert holder.stdout is not None
            if question:
                holder.stdin.write(json.dumps(question) + "\n")
                holder.stdin.flush()
            return json.loads(holder.stdout.readline())

        try:
            yield ask
        finally:
            holder.kill()


@pytest.fixture(scope="module")
def hosts(ask: Ask) -> dict[str, int]:
    assert ask(None) == {"ready": True}
    answer = ask({"names": ["h0", "h1"], "ids": IDS, "group": "railbed-none"})
    assert answer["users"] is True
    return dict(answer["pids"])


def inside(pid: int, *command: str) -> str:
    nsenter = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    return subprocess.run([*nsenter, *command], check=True, capture_output=True, text=True).stdout


def namespace(pid: int | str, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def test_each_host_has_a_network_of_its_own_users(hosts: dict[str, int]) -> None:
    for kind in ("net", "mnt"):
        assert len({namespace(pid, kind) for pid in (*hosts.values(), "self")}) == 3
    for name, pid in hosts.items():
        assert Path(f"/proc/{pid}/comm").read_text() == f"host {name}\n"
        assert namespace(pid, "user") == namespace("self", "user") != os.readlink(f"/proc/{pid}/fd/100")
        assert sorted(os.listdir(f"/proc/{pid}/fd"), key=int) == ["0", "1", "2", "3", "100"]
        assert "UP" in inside(pid, "ip", "link", "show", "lo")
        assert inside(pid, "sysctl", "-n", "net.ipv6.conf.default.disable_ipv6") in ("1\n", "")
    mapped = subprocess.run(
        ["nsenter", f"--user=/proc/{hosts['h0']}/fd/100", "cat", "/proc/self/uid_map"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert mapped.split() == ["0", str(IDS), "65535"]


def test_interfaces_are_configured_and_errors_told(ask: Ask, hosts: dict[str, int]) -> None:
    inside(hosts["h0"], "ip", "tuntap", "add", "nic", "mode", "tap")
    wanted = {"links": [LINK], "routes": ROUTE}
    errors = ask({"configure": {"h0": wanted, "h1": wanted}})["errors"]
    assert errors == {"h1": "nic: No such device"}
    (link,) = json.loads(inside(hosts["h0"], "ip", "-j", "addr", "show", "dev", "nic"))
    assert (link["address"], link["mtu"]) == (MAC, 4096)
    assert "UP" in link["flags"]
    assert [(a["local"], a["prefixlen"]) for a in link["addr_info"]] == [("10.0.0.7", 16)]
    assert inside(hosts["h0"], "ip", "route", "show", "table", "100").startswith("10.0.0.0/8 dev nic")
    refused = ask({"configure": {"h0": {"links": [], "routes": "route add nonsense\n"}}})["errors"]["h0"]
    assert "nonsense" in refused
    assert ask({"configure": {"h0": {"links": [{"name": "nic"}], "routes": ""}}})["errors"].keys() == {"h0"}
    assert ask({"configure": {"h0": {"links": [], "routes": ""}}}) == {"errors": {}}


def test_a_host_that_is_gone_is_told_of(ask: Ask, hosts: dict[str, int]) -> None:
    gone = Process.of(hosts["h1"])
    gone.signal(9)
    assert wait_for(lambda: not gone.alive(), 60)
    errors = ask({"configure": {name: {"links": [], "routes": ""} for name in hosts}})["errors"]
    assert errors.keys() == {"h1"}


def test_hosts_end_with_their_holder() -> None:
    with subprocess.Popen([str(HOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(json.dumps({"names": ["h0"], "ids": None, "group": "railbed-none"}) + "\n")
        holder.stdin.flush()
        answers = [json.loads(holder.stdout.readline()) for _ in range(2)]
        assert answers[1]["users"] is False
        host = Process.of(answers[1]["pids"]["h0"])
        holder.kill()
    assert wait_for(lambda: not host.alive(), 60)
