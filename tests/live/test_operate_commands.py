"""`testbed config` by the command line: at a fabric that is up, and at one that a keeper holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parts.machine import here, told, traces

CLOS = """
name: config
fabric: {topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}}
workload: [{collective: all_reduce, algorithm: ring, sizes: [4KiB]}]
"""


@pytest.fixture(params=["live", "held"], scope="module")
def fabric(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("up") / "config.yaml"
    file.write_text(CLOS)
    how = ("--virtual", "--job") if request.param == "held" else ()
    fabric_id = str(json.loads(told("up", str(file), *how, "--json"))["id"])
    yield fabric_id
    told("down", fabric_id)
    assert traces(fabric_id) == []


def log(fabric: str) -> list[dict[str, Any]]:
    found = json.loads(told("show", "config", "log", fabric, "--json"))
    rows: list[dict[str, Any]] = found["config_log"] if isinstance(found, dict) else found
    return rows


def admin(fabric: str, port: str) -> list[Any]:
    rows = json.loads(told("show", "interfaces", "status", fabric, "--json"))
    rows = rows if isinstance(rows, list) else next(iter(rows.values()))
    return [value for row in rows if row["Interface"] == port for key, value in row.items() if key in ("Admin", "Oper")]


def test_an_action_is_done_recorded_and_taken_back(fabric: str) -> None:
    before = admin(fabric, "leaf0:2")
    said = told("config", "interface", "shutdown", "leaf0:2", "--fabric", fabric)
    assert said.splitlines() == ["1: interface shutdown leaf0:2; takes 50us"]
    assert admin(fabric, "leaf0:2") != before
    (one,) = json.loads(told("config", "ecn", "leaf0", "--kmin", "1KB", "--fabric", fabric, "--json"))
    assert (one["number"], one["line"], one["cost_ns"]) == (2, "ecn leaf0 --kmin 1KB", 50_000)
    assert "rank" in told("config", "cable", "replace", "h0-leaf0", "--fabric", fabric)
    assert [row["State"] for row in log(fabric)] == ["in force", "in force", "done"]
    refused = here("config", "rollback", "3", "--fabric", fabric)
    assert refused.returncode == 2 and "the old cable is gone" in refused.stderr
    assert "1: interface shutdown leaf0:2 rolled back" in told("config", "rollback", "1", "--fabric", fabric)
    assert admin(fabric, "leaf0:2") == before
    told("config", "rollback", "all", "--fabric", fabric)
    assert [row["State"] for row in log(fabric)] == ["rolled back", "rolled back", "done"]
    assert json.loads(told("show", "faults", fabric, "--json")) == []


def test_mistakes_say_what_is_allowed(fabric: str) -> None:
    before = log(fabric)
    for line, says in {
        "": "which action?",
        "interface shutdwn leaf0:1": "did you mean interface shutdown?",
        "pfc leaf0:1 maybe": "one of on, off",
        "rollback": "there is nothing to take back",
        "flow add leaf0 foo=1 actions=drop": "foo",
        "flow add leaf0 ipp=3,actions=drop": "at: flow add",
    }.items():
        done = here("config", *line.split(), "--fabric", fabric)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, (line, done.stderr)
    assert log(fabric) == before


def test_the_controller_of_a_fabric_that_stays_up_is_another_process_and_stays(fabric: str) -> None:
    told("config", "controller", "restart", "--fabric", fabric)
    told("config", "route", "drain", "spine0", "--fabric", fabric)
    told("config", "rollback", "--fabric", fabric)
    assert fabric in told("status", "--all")


def test_there_is_a_fabric_to_be_named() -> None:
    done = here("config", "interface", "shutdown", "leaf0:1", "--fabric", "ffff")
    assert done.returncode != 0 and "ffff" in done.stderr
