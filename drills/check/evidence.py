"""Whether the evidence of a drill holds, against the healthy twin at the same emulated times.

A line of evidence is text for a reader. Its code in backquotes is a statement:

- `show VIEW`: the view differs from the twin's (of several views before one text, one of them does);
- a word behind it: a column, a reason or a message of that name differs there; after `no`: it does not;
- `show VIEW`: nothing: nothing is new there, and nothing is gone;
- `show interfaces counters`, without such a word: also, that a cable between switches brings another number of frames
  than were sent into it;
- `probe mesh`: some pairs take longer than in the twin, or do not answer.

Other lines in backquotes (`capture`, `config`, other probes) are advice, and are not tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drills.check.looked import Seen, closely
from drills.check.marks import Signature, degree, marks, of_job
from drills.check.probes import MESH, of_probes, probed
from drills.check.symptom import steps, symptom
from drills.game import Game
from testbed.live.views import VIEWS
from topologies.graph.fabric import Fabric

JOB = "job"
COUNTED, LEFT = "interfaces counters", 3
"""The view that counts frames on cables; times the most frames in flight from which on a difference is significant."""
AWAY_US = 0.5
"""A path that is longer by one hop."""
_OPENS = re.compile(r"(show|probe|capture|config)\b")
_JOINS = re.compile(r"[\s,]*(and)?[\s,]*")
_NOTHING = re.compile(r"\s*:\s*nothing\b")
_NO = re.compile(r"\bno\s+$")


@dataclass
class Statement:
    """Of a line of evidence, about some views (or `probe mesh`)."""

    line: str
    views: list[str] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    nothing: bool = False

    def holds(self, found: Signature) -> bool:
        """Whether the views show what they must."""
        own = [mark for mark in found if self._is_of(mark)]
        return self.nothing or all(any(_names(mark, word) for mark in own) for word in self.shows) and bool(own)

    def fails(self, found: Signature) -> str:
        """A mark that must not be there ("": none is)."""
        own = sorted(mark for mark in found if self._is_of(mark) and not degree(mark))
        return next((mark for mark in own if self.nothing or any(_names(mark, word) for word in self.lacks)), "")

    def _is_of(self, mark: str) -> bool:
        return any(mark.startswith((f"{view}.", f"{view} ")) for view in self.views)


def _names(mark: str, word: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", mark) is not None


def claims(evidence: Sequence[str]) -> list[Statement]:
    return [statement for line in evidence for statement in _of_line(line) if statement.views]


def _of_line(line: str) -> Iterator[Statement]:
    statement, before = Statement(line), ""
    for k, part in enumerate(line.split("`")):
        if k % 2 == 0:
            statement.nothing |= _NOTHING.match(part) is not None
            before = part
        elif _OPENS.match(part):
            if not _JOINS.fullmatch(before):
                yield statement
                statement = Statement(line)
            statement.views += _views(part)
        elif statement.views:
            (statement.lacks if _NO.search(before) else statement.shows).append(part)
    yield statement


def _views(code: str) -> list[str]:
    """The view of a line, without its options: all ranks and switches are compared."""
    if code == MESH:
        return [MESH]
    words = code.split()[1:] if code.startswith("show ") else []
    known = (" ".join(words[:n]) for n in range(len(words), 0, -1))
    return [next((view for view in known if view in VIEWS), "")] if words else []


def unknown(evidence: Sequence[str]) -> list[str]:
    """Mistakes: lines that name an unknown view."""
    return [f"there is no such view in its evidence: {one.line}" for one in claims(evidence) if "" in one.views]


@dataclass
class Observed:
    """The evidence of a drill, compared with the views of two worlds as time passes."""

    claims: list[Statement]
    _held: set[int] = field(default_factory=set)
    _against: dict[str, str] = field(default_factory=dict)

    def look(self, ill: Game, well: Game) -> None:
        """Compares the views now; takes no time."""
        self._take(found_in(ill, well))

    def measure(self, ill: Game, well: Game) -> None:
        """Compares probes; they take time, so they come last."""
        if any(MESH in claim.views for claim in self.claims):
            self._take(of_probes(probed(ill), probed(well), 1.0, AWAY_US))

    def _take(self, found: Signature) -> None:
        for k, claim in enumerate(self.claims):
            if claim.holds(found):
                self._held.add(k)
            if mark := claim.fails(found):
                self._against.setdefault(claim.line, mark)

    @property
    def open(self) -> bool:
        """Whether a later look may show more of it."""
        return any(k not in self._held and MESH not in claim.views for k, claim in enumerate(self.claims))

    def wrong(self) -> list[str]:
        unseen = dict.fromkeys(claim.line for k, claim in enumerate(self.claims) if k not in self._held)
        wrong = [f"evidence that does not show here: {line}" for line in unseen]
        return wrong + [f"evidence that is not so here ({mark}): {line}" for line, mark in self._against.items()]


def found_in(ill: Game, well: Game) -> Signature:
    """All differences of the world from its twin in views at this time."""
    drill = ill.case.drill
    own, twins = (closely(game, drill.views) for game in (ill, well))
    job = of_job(symptom(steps(ill), steps(well), drill.warmup))
    return marks(own, twins, ()) | job | _of_cables(own, twins, ill.fabric)


def _of_cables(ill: Seen, well: Seen, fabric: Fabric) -> Signature:
    """Whether more or fewer frames come out of some cable than go in; in the twin, the difference is in flight."""
    usual = max((abs(missing) for missing in _missing(well, fabric)), default=0)
    odd = any(abs(missing) > LEFT * (usual + 1) for missing in _missing(ill, fabric))
    return frozenset([f"{COUNTED}.cables received new"] if odd else [])


def _missing(seen: Seen, fabric: Fabric) -> Iterator[int]:
    """Frames sent less frames received, of each direction of the cables between switches."""
    rows = {str(row["IFACE"]): row for row in seen.get(COUNTED, {}).get("counters", ())}
    for cable in fabric.cables:
        a, b = (rows.get(f"{end.node}:{end.port}") for end in (cable.a, cable.b))
        if a and b:
            yield from (int(one["TX_OK"]) - int(other["RX_OK"]) for one, other in ((a, b), (b, a)))
