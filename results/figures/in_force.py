"""What was in force on a live fabric during a run, and is no part of its experiment: in words, and how to get it again.

`live` is what live.json of a run folder holds: `fabric`, its id, and `in_force`, a list of
- `what`: `fault` or `action` (an operator's), `id`
- `line`: the words behind `testbed inject` or `testbed config`; None of a fault that came and went unseen
- `primitive`: of such a fault
- `from_us`: since when, in us of the run's time; None if it was there when the run began
- `off`: a fault that was there and had yet to strike, or was between two strikes, when the run began
- `passing`: of an action that was done or rolled back before, what lasts only for a while, such as a link that is down
- `gone`: it was healed or rolled back before the run ended; `until_us`: when, if that is known
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

_COMMANDS = {"fault": "testbed inject", "action": "testbed config"}
_KEYS = {"fault": "live.faults", "action": "live.config"}
ALWAYS = "all the time"
_GONE = {"fault": "gone", "action": "rolled back"}


def _named(one: Mapping[str, Any]) -> str:
    return str(one["line"] or f"{one['id']} ({one.get('primitive')})")


def when(one: Mapping[str, Any]) -> str:
    """When it was in force: `all the time`, `from 12.300 us on`.."""
    if one["line"] is None:
        return "put in and healed meanwhile"
    if one.get("passing"):
        return "was still passing when it began"
    began, until, gone = one.get("from_us"), one.get("until_us"), one.get("gone")
    if began is None and not gone:
        return "there all the time, off when it began" if one.get("off") else ALWAYS
    since = "from the beginning" if began is None else f"from {began:.3f} us"
    end = (
        " on" if not gone else f" to {until:.3f} us" if until is not None else f", {_GONE[one['what']]} before the end"
    )
    return since + end


def commands(live: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of each fault and action: the command that puts it in, and when it was in force."""
    return [(_command(one), when(one)) for one in live.get("in_force", ())]


def _command(one: Mapping[str, Any]) -> str:
    return f"{_COMMANDS[one['what']] if one['line'] else 'fault'} {_named(one)}"


def keys(live: Mapping[str, Any]) -> dict[str, str]:
    """As keys of a comparison, with when each was in force; a second one that is the same has a number."""
    times: dict[str, str] = {}
    for one in live.get("in_force", ()):
        key, number = f"{_KEYS[one['what']]}: {_named(one)}", 1
        name = key
        while name in times:
            number += 1
            name = f"{key} ({number})"
        times[name] = when(one)
    return times


def again(live: Mapping[str, Any], file: str, clock: Any) -> str:
    """The commands that give the run of that file again, a line each. `clock` is the experiment's."""
    file = shlex.quote(file)
    if not live.get("in_force"):
        return f"testbed run {file}"
    lines = [f"testbed up {file}{' --virtual' if clock == 'virtual' else ''}  # it prints an ID"]
    for one in live["in_force"]:
        text = f"{_command(one)}{' --fabric ID' if one['line'] else ''}"
        lines.append(text if when(one) == ALWAYS else f"# {when(one)}: {text}")
    nearly = "# nearly: what ran on that fabric before, and how long ago it was set, is not repeated"
    return "\n".join([*lines, f"testbed run {file} --fabric ID", nearly])
