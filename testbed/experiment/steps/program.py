"""The step `program`: unmodified programs in ranks' containers, such as perftest's, as a part of an experiment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from testbed.base.types import Time, default, mistake
from testbed.base.units import UnitError, parse_size
from testbed.experiment.steps.step import Blocks, Found, Step, rank_out_of_range
from topologies.graph.fabric import Fabric

MOST_PROGRAMS = 4096
FIRST_PORT = 18515  # perftest's
OWN_PORT = "{port}"
PLACES = ("{server}", OWN_PORT, "{rank}")
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?([kKMG]i?B)")
_ONE_CLIENT = re.compile(r"ib_(write|read|send|atomic)_(bw|lat)$")


def _words(value: Any) -> Any:
    """A line is taken apart as a shell does; quantities that YAML reads as numbers are words, too."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise mistake(f"{value!r:.60} cannot be taken apart: {error}", "[ib_write_bw, -s, 64KiB]") from None
    if isinstance(value, list):
        return [str(one) if isinstance(one, int | float) and not isinstance(one, bool) else one for one in value]
    return value


Words = Annotated[
    list[Annotated[str, Field(max_length=4096)]],
    BeforeValidator(_words, json_schema_input_type=list[str | int | float] | str),
    Field(min_length=1, max_length=1000),
]


def in_bytes(word: str) -> str:
    """A size as it is written in an experiment, `64KiB`, is what programs take: a number of bytes."""
    if _SIZE.fullmatch(word):
        with suppress(UnitError):
            return str(parse_size(word))
    return word


class ProgramStep(Step):
    kind: ClassVar[str] = "program"
    title: ClassVar[str] = "programs"
    unpredictable: ClassVar[str] = "what a program does is known when it has been run"

    program: Words = Field(
        description="a program and its arguments, as they are typed; sizes such as `64KiB` become bytes. Clients get "
        "the server's address behind them, or where `{server}` stands; `{port}` and `{rank}` stand for numbers"
    )
    server: Words | None = Field(
        default=None, description="what servers run, where that is not the same (without the server's address)"
    )
    ranks: list[int] | None = Field(
        default=None, min_length=1, max_length=MOST_PROGRAMS,
        description="ranks that run it, each by itself, in torchrun's environment (null: all, if there are no servers)",
    )  # fmt: skip
    servers: list[int] | None = Field(
        default=None, min_length=1, max_length=MOST_PROGRAMS,
        description="instead of `ranks`: ranks that run it as servers",
    )  # fmt: skip
    clients: list[int] | None = Field(
        default=None, min_length=1, max_length=MOST_PROGRAMS,
        description="and those that run it as clients, of the servers in turn. With `{port}` among the words each "
        "client has a server's process of its own",
    )  # fmt: skip
    after: Time | None = Field(
        default=None, le=1e13,
        description="when clients begin, after the servers (null: 10ms; with the real clock as soon as those listen)",
    )  # fmt: skip
    timeout: Time = default("10s", "when a program that has not ended makes the run fail", gt=0, le=1e13)
    may_fail: bool = Field(default=False, description="a program that ends with another code than 0 is a result")
    env: dict[str, str] = Field(
        default_factory=dict, max_length=1000, description="`{NAME: VALUE}` in the programs' environment"
    )

    @property
    def label(self) -> str:
        return self.program[0].rpartition("/")[2]

    def alone(self, endpoints: Collection[int]) -> Collection[int]:
        """Programs see the NIC of the container that they run in."""
        if self.servers is not None:
            return [*self.servers, *(self.clients or ())]
        return endpoints if self.ranks is None else self.ranks

    def mistakes(self, blocks: Blocks, fabric: Fabric) -> Iterator[Found]:
        if self.transport:
            yield ("transport",), "programs send by what their NICs do", "transport: at the top of the experiment"
        for key in ("ranks", "servers", "clients"):
            for k, rank in enumerate(getattr(self, key) or ()):
                if problem := rank_out_of_range(rank, fabric.ranks):
                    yield (key, k), *problem
                elif key != "clients" and rank in getattr(self, key)[:k]:
                    yield (key, k), f"rank {rank} stands twice", "once each"
        for key in ("program", "server"):
            for k, word in enumerate(getattr(self, key) or ()):
                if "\0" in word:
                    yield (key, k), "a word of a command has no character 0 in it", ""
        if not self.program[0]:
            yield ("program", 0), "the name of the program is empty", "ib_write_bw"
        yield from self._of_pairs()

    def _of_pairs(self) -> Iterator[Found]:
        if self.ranks is not None and (self.servers is not None or self.clients is not None):
            yield ("ranks",), "programs run either by themselves or as servers and clients", "leave ranks out"
        if (self.servers is None) != (self.clients is None):
            here, missing = ("servers", "clients") if self.clients is None else ("clients", "servers")
            yield (here,), f"there are {here}, and no {missing}", f"{missing}: [..]"
        if self.server is not None and self.servers is None:
            yield ("server",), "nobody runs it", "servers: [..] and clients: [..]"
        if self.servers is None or self.clients is None or OWN_PORT in " ".join(self.program):
            return
        if len(self.clients) > len(self.servers) and _ONE_CLIENT.match(self.label):
            what = f"{self.label} serves one client, and there are {len(self.clients)} of {len(self.servers)} servers"
            yield ("clients",), what, "a process for each: -p, '{port}' among the words"
