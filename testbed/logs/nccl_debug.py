"""What NCCL says of itself (`NCCL_DEBUG=INFO`, subsystems INIT, GRAPH, TUNING, ENV).

Its choice for each size, the tuner's table, channels, NICs, transports and settings. What is not printed stays unknown.
"""

from __future__ import annotations

import re

from testbed.logs.row import Choice, Log, named, number

MOST_CHOICES = 20_000
_OF_A_RANK = ("all_gather", "reduce_scatter")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
_BY_WORD = {name.replace("_", ""): name for name in (*ALGORITHMS, *PROTOCOLS)}

_CHOICE = re.compile(
    r"(?:(\w{1,40}): )?\b([1-9]\d{0,17}) Bytes -> Algo (\w{1,40}) proto (\w{1,40})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,3})\.\.(\d{1,3})\})?",
    re.ASCII,
)
_CHANNELS = re.compile(
    r"\b(\d{1,4}) coll channels, .*?\b(\d{1,4}) p2p channels, (\d{1,4}) p2p channels per peer", re.ASCII
)
_ENV = re.compile(r"(NCCL_[A-Z0-9_]{1,60}) set by environment to (.{1,200})")
_ENV_SET = re.compile(r"(NCCL_[A-Z0-9_]{1,60}) set to (.{1,200})")
_VIA = re.compile(r"via (NET/\w+/\d+(?:/\w+)*|P2P/\w+(?:/\w+)*|SHM/\w+(?:/\w+)*)")
_VERSION = re.compile(r"(?:NCCL|RCCL) version\s*:?\s*(\d{1,3}\.\d{1,3}\.\d{1,3})\b", re.ASCII)
_RANKS = re.compile(r"\brank \d+ nranks (\d{1,7}) ")
_PAIR = re.compile(r"([\d.]+)/\s*([\d.]+)")


class NcclDebug:
    """Reads what NCCL has printed, line by line, into a log."""

    def __init__(self, file: str, log: Log) -> None:
        self._file, self._log = file, log
        self._columns: list[tuple[str, str]] = []
        self._ranks = 0
        self.found = 0

    def read(self, number: int, text: str) -> None:
        library = self._log.library
        if found := _CHOICE.search(text):
            self._choice(number, *found.groups())
        elif found := _CHANNELS.search(text):
            told = tuple(map(int, found.groups()))
            before = library.channels, library.p2p_channels, library.p2p_per_peer
            if before[0] is not None and before != told:
                self._log.warn(f"{self._file}:{number}", f"{told[0]} coll channels, and before {before[0]}")
            library.channels, library.p2p_channels, library.p2p_per_peer = told
        elif (found := _ENV.search(text)) or (found := _ENV_SET.search(text)):
            library.set(found.group(1), found.group(2).strip().rstrip("."))
        elif found := _RANKS.search(text):
            self._ranks = int(found.group(1))
        elif found := _VERSION.search(text):
            library.version = library.version or found.group(1)
            library.name = "rccl" if found.group().startswith("RCCL") else library.name
        elif found := _VIA.search(text):
            library.transports.add("/".join(found.group(1).split("/")[:2]))
        elif text.startswith("NET/"):
            library.nics |= set(re.findall(r"\[\d+\](\w+:\d+)", text)[:64])
        elif "|" in text:
            self._table(text)
        else:
            return
        self.found += 1

    def _choice(
        self, line: int, collective: str | None, size: str, algorithm: str, protocol: str, low: str | None, high: str
    ) -> None:
        choices = self._log.library.choices
        name = (named(collective) or collective) if collective else ""
        algorithm, protocol = _word(algorithm, ALGORITHMS), _word(protocol, PROTOCOLS)
        channels = max(int(high) - int(low) + 1, 0) or None if low is not None else None
        each = self._ranks if name in _OF_A_RANK and self._ranks else 1  # NCCL counts what one rank has
        made = Choice(name, self._ranks, int(size) * each, algorithm, protocol, channels)
        key = name, made.ranks, made.size_bytes
        if key not in choices and len(choices) >= MOST_CHOICES:
            return
        before = choices.get(key)
        if before and (before.algorithm, before.protocol) != (algorithm, protocol):
            what = f"{size} bytes by {algorithm}/{protocol}, and before by {before.algorithm}/{before.protocol}"
            self._log.warn(f"{self._file}:{line}", what)
        choices[key] = made

    def _table(self, text: str) -> None:
        """The tuner's: `Algorithm |  Tree | Ring |`, `Protocol | LL | ..`, `AllReduce | latency/bandwidth | ..`."""
        head, *cells = (cell.strip() for cell in text.split("|"))
        cells = [cell for cell in cells if cell]
        if head == "Algorithm":
            self._columns = [(_word(cell, ALGORITHMS), "") for cell in cells[:16]]
        elif head == "Protocol" and self._columns and len(cells) <= 64:
            each = max(1, len(cells) // len(self._columns))
            names = [name for name, _ in dict.fromkeys(self._columns)]
            self._columns = [
                (names[i // each], _word(cell, PROTOCOLS)) for i, cell in enumerate(cells) if i // each < len(names)
            ]
        elif (collective := named(head)) and self._columns:
            for (algorithm, protocol), cell in zip(self._columns, cells, strict=False):
                if found := _PAIR.search(cell):
                    latency, bandwidth = number(found.group(1)), number(found.group(2))
                    if protocol and latency is not None and bandwidth:
                        self._log.library.table[collective, algorithm, protocol] = latency, bandwidth


def _word(text: str, by_number: tuple[str, ...]) -> str:
    """Older versions print numbers; newer ones capitals."""
    if text.isdecimal() and int(text) < len(by_number):
        return by_number[int(text)]
    return _BY_WORD.get(text.lower().replace("_", ""), text[:40])
