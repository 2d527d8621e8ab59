"""Whether what a drill gives as evidence is so, against the healthy twin at the same holds.

A line of evidence is text for a reader. What stands in it in backquotes is a claim:

- `show VIEW`: the view differs from the twin's (of several views before one text, one of them does);
- a word behind it: a column, a reason or a message of that name differs there; after `no`: it does not;
- `show VIEW`: nothing: nothing is new there, and nothing is gone;
- `show interfaces counters`, without such a word: also, that a cable between switches brings another number of frames
  than were sent into it;
- `probe mesh`: some pairs take longer than in the twin, or do not answer.

Other lines in backquotes (`capture`, `config`, other probes) are what one may do, and are not tried.
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
"""The view that counts what goes into cables; so many times what is under way at most is no chance."""
AWAY_US = 0.5
"""A way that is longer by one hop."""
_OPENS = re.compile(r"(show|probe|capture|config)\b")
_JOINS = re.compile(r"[\s,]*(and)?[\s,]*")
_NOTHING = re.compile(r"\s*:\s*nothing\b")
_NO = re.compile(r"\bno\s+$")


@dataclass
class Claim:
    """What a line says of some views (or of `probe mesh`)."""

    line: str
    views: list[str] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    nothing: bool = False

    def holds(self, found: Signature) -> bool:
        """What the views must show is there."""
        its = [mark for mark in found if self._is_of(mark)]
        return self.nothing or all(any(_names(mark, word) for mark in its) for word in self.shows) and bool(its)

    def fails(self, found: Signature) -> str:
        """What is there and must not be ("": nothing)."""
        its = sorted(mark for mark in found if self._is_of(mark) and not degree(mark))
        against = (mark for mark in its if self.nothing or any(_names(mark, word) for word in self.lacks))
        return next(against, "")

    def _is_of(self, mark: str) -> bool:
        return any(mark.startswith((f"{view}.", f"{view} ")) for view in self.views)


def _names(mark: str, word: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", mark) is not None


def claims(evidence: Sequence[str]) -> list[Claim]:
    return [claim for line in evidence for claim in _of_line(line) if claim.views]


def _of_line(line: str) -> Iterator[Claim]:
    claim, before = Claim(line), ""
    for k, part in enumerate(line.split("`")):
        if k % 2 == 0:
            claim.nothing |= _NOTHING.match(part) is not None
            before = part
        elif _OPENS.match(part):
            if not _JOINS.fullmatch(before):
                yield claim
                claim = Claim(line)
            claim.views += _views(part)
        elif claim.views:
            (claim.lacks if _NO.search(before) else claim.shows).append(part)
    yield claim


def _views(code: str) -> list[str]:
    """The view of a line, without its options; `nic RANK` and `flows SWITCH` are looked at for all."""
    if code == MESH:
        return [MESH]
    words = code.split()[1:] if code.startswith("show ") else []
    known = (" ".join(words[:n]) for n in range(len(words), 0, -1))
    return [next((view for view in known if view in VIEWS), "")] if words else []


def unknown(evidence: Sequence[str]) -> list[str]:
    """Lines that name a view which there is not."""
    return [f"there is no such view in its evidence: {one.line}" for one in claims(evidence) if "" in one.views]


@dataclass
class Watched:
    """The evidence of a drill, held against what two worlds show from hold to hold."""

    claims: list[Claim]
    _held: set[int] = field(default_factory=set)
    _against: dict[str, str] = field(default_factory=dict)

    def look(self, ill: Game, well: Game) -> None:
        """At this hold; takes no time."""
        self._take(found_in(ill, well))

    def measure(self, ill: Game, well: Game) -> None:
        """What shows by probes alone; takes time, so it comes last."""
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
        """Whether a look may still show what was not seen yet."""
        return any(k not in self._held and MESH not in claim.views for k, claim in enumerate(self.claims))

    def wrong(self) -> list[str]:
        unseen = [claim.line for k, claim in enumerate(self.claims) if k not in self._held]
        said = [f"evidence that does not show here: {line}" for line in dict.fromkeys(unseen)]
        return said + [f"evidence that is not so here ({mark}): {line}" for line, mark in self._against.items()]


def found_in(ill: Game, well: Game) -> Signature:
    """All that sets the world apart from its twin at this hold, by views."""
    drill = ill.case.drill
    its, twins = (closely(game, drill.views) for game in (ill, well))
    job = of_job(symptom(steps(ill), steps(well), drill.warmup))
    return marks(its, twins, ()) | job | _of_cables(its, twins, ill.fabric)


def _of_cables(ill: Seen, well: Seen, fabric: Fabric) -> Signature:
    """Whether more or less comes out of some cable than goes in; what is under way is as much in the twin."""
    usual = max((abs(missing) for missing in _missing(well, fabric)), default=0)
    odd = any(abs(missing) > LEFT * (usual + 1) for missing in _missing(ill, fabric))
    return frozenset([f"{COUNTED}.cables received new"] if odd else [])


def _missing(seen: Seen, fabric: Fabric) -> Iterator[int]:
    """Frames that were sent and are not there, of each direction of the cables between switches."""
    rows = {str(row["IFACE"]): row for row in seen.get(COUNTED, {}).get("counters", ())}
    for cable in fabric.cables:
        a, b = (rows.get(f"{end.node}:{end.port}") for end in (cable.a, cable.b))
        if a and b:
            yield from (int(one["TX_OK"]) - int(other["RX_OK"]) for one, other in ((a, b), (b, a)))
