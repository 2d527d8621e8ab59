"""A session for programs: requests in, short answers out, whatever the requests are.

A request is {"command": LINE}, {"tool": NAME, "arguments": {..}} or {"cursor": NEXT}, each with `id` and `form` if
wanted. An answer is one line {id, ok, time_ns, text, next, error}; errors are the program's to read, nothing is raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from drills.agents.pages import Pages, dumped
from drills.agents.tools import BY_NAME, LONGEST
from drills.session import Answer, Session
from testbed.base.errors import InputError, UserError
from testbed.base.text import fit
from testbed.base.types import unknown

KEYS = ("id", "command", "tool", "arguments", "cursor", "form")
REQUEST = '{"command": "show job"}, or {"tool": "advance", "arguments": {"us": 200}}'
_LOOKING = ("show", "help", "ticket", "topology", "status", "classes", "actions", "report")
_LONGEST_ERROR = 400
_LONGEST_ID = 64
OVER = "the drill is over"


class AgentSession:
    """`blind`: when it is over, neither score nor truth are shown, and nothing more is answered; `heard` gets each
    request and its answer."""

    def __init__(
        self, session: Session, *, blind: bool = False, heard: Callable[[Any, str], None] = lambda request, answer: None
    ) -> None:
        self._session = session
        self._blind = blind
        self._heard = heard
        self._pages = Pages()
        self._time_ns: float = session.state()["time_ns"]
        self.over = False
        self.gone = False
        """The session does not answer any more."""
        self.calls = 0

    def ask_line(self, line: bytes) -> str:
        """A request as it has come in; a whole line, or more than fits."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return self._line({}, line[:LONGEST].decode(errors="replace"), _wrong("this is no JSON", REQUEST))
        return self.ask(request)

    def too_long(self, most: int) -> str:
        return self._line({}, None, _wrong(f"a line of more than {most} bytes", REQUEST))

    def ask(self, request: Any) -> str:
        head: dict[str, Any] = {}
        try:
            asked = _checked(request)
            head = {"id": asked["id"]} if "id" in asked else {}
            return self._line(head, request, self._answer(head, asked))
        except UserError as error:
            self.gone |= not isinstance(error, InputError)  # its server is gone
            return self._line(head, request, error)

    def _answer(self, head: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        """Raises UserError."""
        if self._blind and self.over:
            raise InputError(OVER, "drill", "nothing more is told")
        if "cursor" in asked:
            return self._pages.further(asked["cursor"], head)
        line = BY_NAME[asked["tool"]].line(asked["arguments"]) if "tool" in asked else asked["command"]
        answer = self._session.command(line)
        self._time_ns = answer.time_ns
        if line.split()[:1] and line.split()[0] not in _LOOKING and not self.over:
            self.over = bool(self._session.state()["over"])
        if self._blind and self.over:
            answer = Answer(True, answer.time_ns, OVER, {"over": True})
        if not answer.ok:
            error = {"what": answer.text, **(answer.error or {})}
            what, where, hint = (str(error.get(key, "")) for key in ("what", "where", "hint"))
            raise InputError(what, where, hint)
        head = {**head, "ok": True, "time_ns": answer.time_ns}
        as_json = asked.get("form") == "json"
        return self._pages.first_of(head, answer.data) if as_json else self._pages.first(head, answer.text)

    def _line(self, head: dict[str, Any], request: Any, answer: dict[str, Any] | UserError) -> str:
        self.calls += 1
        if isinstance(answer, UserError):
            parts = {"what": answer.what, "where": answer.where, "hint": answer.hint}
            error = {key: fit(value)[:_LONGEST_ERROR] for key, value in parts.items() if value}
            answer = {**head, "ok": False, "time_ns": self._time_ns, "error": error}
        line = dumped(answer)
        self._heard(request, line)
        return line


def _wrong(what: str, hint: str) -> InputError:
    return InputError(what, "request", hint)


def _checked(request: Any) -> dict[str, Any]:
    """With cursor and form from wherever they stand. Raises InputError."""
    if not isinstance(request, dict):
        raise _wrong("this is no JSON object", REQUEST)
    asked = dict(request)
    for key in asked:
        if key not in KEYS:
            what, hint = unknown("key", key[:80], list(KEYS))
            raise _wrong(what, hint)
    ident = asked.get("id")
    if not isinstance(ident, int | str | None) or len(str(ident)) > _LONGEST_ID:
        raise _wrong("an id is a number or a text", f"{_LONGEST_ID} characters at most")
    if isinstance(ident, str):
        asked["id"] = fit(ident)
    if "tool" in asked:
        _tool(asked)
    elif "arguments" in asked:
        raise _wrong("arguments without a tool", REQUEST)
    for key, most in (("command", LONGEST), ("cursor", _LONGEST_ID)):
        if key in asked and not (isinstance(asked[key], str) and len(asked[key]) <= most):
            raise _wrong(f"{key} is a text of {most} characters at most", REQUEST)
    if asked.get("form", "text") not in ("text", "json"):
        raise _wrong("form is text or json", REQUEST)
    if sum(key in asked for key in ("command", "tool")) > 1 or not {"command", "tool", "cursor"} & asked.keys():
        raise _wrong("command, tool or cursor: one of them", REQUEST)
    return asked


def _tool(asked: dict[str, Any]) -> None:
    name, given = asked["tool"], asked.get("arguments")
    if not isinstance(name, str) or name not in BY_NAME:
        what, hint = unknown("tool", str(name)[:80], list(BY_NAME))
        raise _wrong(what, hint)
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise _wrong("arguments are an object", REQUEST)
    given = {key: value for key, value in given.items() if value is not None}  # some clients send all there are
    if isinstance(given.get("cursor"), str):
        asked["cursor"] = given["cursor"]
    else:
        BY_NAME[name].check(given)
    if "form" in given:
        asked["form"] = given.pop("form")
    asked["arguments"] = given
