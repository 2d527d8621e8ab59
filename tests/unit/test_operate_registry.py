"""The registry of operators' actions, before any fabric is up: what entries say, the page, help."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.faults import CATALOGUE, Injection
from testbed.operate.registry import ACTIONS, GROUPS
from testbed.words.entry import find
from tests.pages import operate as page
from topologies import build

CLOS = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2})


def test_the_page_is_made_from_the_registry() -> None:
    assert page.tables() in page.PAGE.read_text(), "run python -m tests.pages.operate"


def test_no_words_stand_twice() -> None:
    assert len(ACTIONS) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize("words", ACTIONS)
def test_an_action_says_what_it_is_and_its_example_can_be_read(words: str) -> None:
    action = ACTIONS[words]
    assert all((action.about, action.cost_from, action.blast, action.traffic, action.cost_ns > 0))
    found, rest = find(ACTIONS.values(), f"{words} {action.example}".split())
    assert found is action
    assert set(action.read(rest, CLOS)) == {p.name for p in action.parameters}
    assert set(action.configures) <= set(CATALOGUE)
    said = CliRunner().invoke(cli, ["config", *words.split(), "--help"])
    assert (said.exit_code, action.usage in said.output) == (0, True)


@pytest.mark.parametrize(("words", "what"), [("50Gbps ,", "no rank is named"), ("0Gbps 1,3", "out of bounds")])
def test_a_tenant_without_ranks_or_rate_is_refused_before_it_costs(words: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        ACTIONS["tenant limit"].read(words.split(), CLOS)


def test_what_removes_a_fault_is_an_action() -> None:
    for name, fault in CATALOGUE.items():
        assert set(fault.mended_by) <= set(ACTIONS), name


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("loss rate=0.1 on=cable:leaf0-spine0", "cable:leaf0-spine0 port:leaf0:3 port:spine0:1"),
        ("loss rate=0.1 on=port:spine0:1", "cable:leaf0-spine0 port:leaf0:3 port:spine0:1"),
        ("corruption rate=0.1 on=cable:h1-leaf0", "cable:h1-leaf0 nic:1 port:leaf0:2"),
        ("corruption rate=0.1 on=nic:1", "cable:h1-leaf0 nic:1 port:leaf0:2"),
        ("loss rate=0.1 on=switch:leaf0", "switch:leaf0"),
        ("ecn_off on=switch:leaf0", "switch:leaf0"),
        ("slow_pcie rate=1Gbps on=nic:1", "nic:1"),
        ("small_headroom size=0B on=port:leaf0:3", "port:leaf0:3"),
        ("loop to=0 neighbour=spine0 on=switch:leaf0", "switch:leaf0 switch:spine0"),
        ("miswired other=leaf0-spine1 on=cable:leaf0-spine0",
         "cable:leaf0-spine0 port:leaf0:3 port:spine0:1 cable:leaf0-spine1 port:leaf0:4 port:spine1:1"),
        ("controller_dead on=controller", "controller"),
        ("polarised_hash on=all", "all"),
    ],
)  # fmt: skip
def test_what_is_at_fault_by_all_its_names(fault: str, named: str) -> None:
    name, *parameters = fault.split()
    written = {key: value for key, _, value in (word.partition("=") for word in parameters)}
    numbers = {key: float(value) if key == "rate" else int(value) for key, value in written.items()
               if key in ("rate", "to") and value.replace(".", "").isdigit()}  # fmt: skip
    injection = Injection.of({"fault": name, **written, **numbers})
    assert injection.fault.resources(injection.place(CLOS)) == tuple(named.split())
