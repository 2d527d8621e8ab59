"""Commands as entries: how a line is read, what is said about a wrong one, what may come next."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import InputError
from testbed.words import kinds
from testbed.words.entry import Entry, Parameter, find, offers
from testbed.words.kinds import Since, Wrong
from topologies import build
from topologies.graph.fabric import End

FABRIC = build("clos", {"leaves": 2, "spines": 2, "hosts_per_leaf": 2})
SHUT = Entry(
    words="interface shutdown",
    about="Shut a port down.",
    parameters=(
        Parameter("port", kinds.PORT, "which", required=True),
        Parameter("for_ns", kinds.TIME, "how long", option=True),
        Parameter("quiet", kinds.FLAG, "say nothing", option=True),
    ),
)
SHOW = Entry(words="interface", about="Show one.", parameters=(Parameter("port", kinds.PORT, "which"),))
FLOW = Entry(words="flow add", about="Add.", parameters=(Parameter("text", kinds.TEXT, "rule", rest=True),))
WAIT = Entry(
    words="wait",
    about="Wait.",
    parameters=(Parameter("until", kinds.TEXT, "what", rest=True), Parameter("for", kinds.TIME, "how long", True)),
)
ALL = [SHUT, SHOW, FLOW]


def read(line: str) -> tuple[str, dict[str, Any]]:
    entry, rest = find(ALL, line.split())
    return entry.words, entry.read(rest, FABRIC)


def test_a_line_is_read_by_the_entry_with_the_most_words() -> None:
    assert read("interface shutdown leaf0:3 --for-ns 1us") == (
        "interface shutdown",
        {"port": End("leaf0", 3), "for_ns": 1000.0, "quiet": False},
    )
    assert read("interface h0")[1] == {"port": End("h0", 1)}
    assert read("interface shutdown --quiet --for-ns=2us leaf0:1")[1]["quiet"] is True
    assert read("flow add priority=7 actions=drop")[1] == {"text": "priority=7 actions=drop"}
    assert read("flow add a --b")[1] == {"text": "a --b"}  # it has no options
    for line in ("drops > 0 --for 1us", "--for 1us drops > 0", "drops --for=1us > 0"):
        assert WAIT.read(line.split(), FABRIC) == {"until": "drops > 0", "for": 1000.0}


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ("interface shutdown leaf0:9", "leaf0 has no port 9", "leaf0:1 to leaf0:4"),
        ("interface shutdown leaf7:1", "there is no port leaf7:1", "leaf0"),
        ("interface shutdown", "PORT is missing", "interface shutdown PORT"),
        ("interface shutdown leaf0:1 now", "'now' is one word too many", "PORT"),
        ("interface shutdown leaf0:1 --fur 3", "no option --fur", "--for-ns"),
        ("interface shutdown leaf0:1 --for-ns", "needs a value", "--for-ns TIME"),
        ("interface shutdown leaf0:1 --for-ns 3", "no unit", "us"),
        ("flow", "'flow' is not a whole command", "flow add"),
        ("flow up", "there is no 'flow up'", "flow add"),
        ("interfaces", "there is no 'interfaces'", "did you mean interface"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_allowed(line: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as wrong:
        read(line)
    assert what in wrong.value.what and hint in wrong.value.hint, (wrong.value.what, wrong.value.hint)
    assert wrong.value.where and wrong.value.exit_code == 2


def test_words_of_a_command_are_shortened_as_far_as_only_one_can_be_meant() -> None:
    entry, rest = find([SHUT, FLOW], ["int", "shut", "leaf0:3"])
    assert (entry, rest) == (SHUT, ["leaf0:3"])
    assert read("fl ad priority=7 add")[1] == {"text": "priority=7 add"}  # what follows is left as it is
    with pytest.raises(InputError, match="there is no 'i h0'"):
        read("i h0")  # a slip of the finger
    assert find(ALL, ["interface", "sh"]) == (SHOW, ["sh"]), "a parameter, where a command may end"
    entries = [Entry(words=words, about="") for words in ("show pfc", "show pfcwd", "show port", "show pfc config")]
    assert find(entries, ["show", "pfc"])[0].words == "show pfc"
    assert find(entries, ["sh", "pfcw"])[0].words == "show pfcwd"
    with pytest.raises(InputError, match="there is no 'show pf'"):
        find(entries, ["show", "pf"])


def test_many_commands_that_begin_alike_are_listed_by_their_next_word() -> None:
    entries = [
        Entry(words=f"show {word}", about="") for word in ["one", "two", "three", "four", "five", "six", "seven"]
    ]
    with pytest.raises(InputError) as wrong:
        find(entries, ["show", "ip", "route"])
    assert (wrong.value.what, wrong.value.hint) == (
        "there is no 'show ip'",
        "show is followed by one of: five, four, one, seven, six, three, two",
    )
    with pytest.raises(InputError) as wrong:
        find(entries, ["seven"])
    assert wrong.value.hint == "did you mean show seven?"


def test_a_word_in_its_plural_is_no_dead_end() -> None:
    entries = [Entry(words=words, about="") for words in ("show queues", "show queue watermark", "show drops")]
    for line in ("show queues watermark", "show queue watermarks"):
        with pytest.raises(InputError) as wrong:
            find(entries, line.split())
        assert wrong.value.hint == "did you mean show queue watermark?"
    assert find(entries, ["show", "drops", "all"])[1] == ["all"]


def test_what_begins_alike_is_offered_and_nothing_else() -> None:
    entries = [Entry(words=words, about="") for words in ("config nic cc", "config nic replace", "config ecn", "show")]
    for line in ("config nic", "config nic 4 replace"):
        with pytest.raises(InputError) as wrong:
            find(entries, line.split())
        assert wrong.value.hint == "there are: config nic cc, config nic replace"


def test_every_kind_reads_what_it_offers() -> None:
    for kind in (kinds.SWITCH, kinds.RANK, kinds.PORT, kinds.CABLE, kinds.PLACE):
        for word, _ in kind.known(FABRIC):
            kind.read(word, FABRIC)
    assert kinds.RANK.read("h2", FABRIC) == kinds.RANK.read("nic:2", FABRIC) == 2
    assert kinds.PLACE.read("nic:1", FABRIC) == End("h1", 1)
    assert kinds.CABLE.read("spine0-leaf0", FABRIC).name == "leaf0-spine0"
    with pytest.raises(Wrong, match="no rank 4"):
        kinds.RANK.read("4", FABRIC)


def test_a_moment_is_ago_or_of_emulated_time_and_in_the_past() -> None:
    assert kinds.SINCE.read("300us", FABRIC) == Since("300us", ago_ns=300_000.0)
    assert kinds.SINCE.read("300us", FABRIC).at(1_000_000) == 700_000
    assert kinds.SINCE.read("300us", FABRIC).at(1000) == 0
    assert kinds.SINCE.read("@300us", FABRIC).at(1_000_000) == 300_000
    with pytest.raises(Wrong, match="in the future"):
        kinds.SINCE.read("@2ms", FABRIC).at(1_000_000)


def next_words(*line: str) -> list[str]:
    return [word for word, _ in offers(ALL, line, FABRIC)]


def test_what_may_come_next() -> None:
    assert next_words() == ["interface", "flow"]
    assert next_words("interface")[0] == "shutdown" and "leaf0:1" in next_words("interface")
    assert "leaf1:4" in next_words("interface", "shutdown") and "--quiet" in next_words("interface", "shutdown")
    assert next_words("interface", "shutdown", "leaf0:1") == ["--for-ns", "--quiet"]
    assert next_words("flow") == ["add"]
