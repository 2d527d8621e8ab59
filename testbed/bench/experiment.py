"""From bench's options to an experiment: one fabric, and a step for each algorithm, type, reduction and root."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from testbed.base.errors import InputError, Problem
from testbed.base.types import unknown
from testbed.bench import sizes as notation
from testbed.experiment.blocks.known import choices
from testbed.experiment.blocks.known import own as is_own
from testbed.experiment.blocks.own import short, unproved
from topologies.kinds import KINDS
from topologies.ranks.ring_order import ring_order
from workloads import registry
from workloads.base.entry import Algorithm
from workloads.base.vocabulary import DTYPES, OPS, combines
from workloads.own import files
from workloads.own.mistake import BadAlgorithm

if TYPE_CHECKING:
    from testbed.experiment import Experiment

USUAL_BYTES = 32 << 20
PRESETS = {kind.name: kind for kind in KINDS.values() if kind.preset}  # kinds whose parameters follow from -g
RANKS = 8  # of a preset, if -g is not given
_INLINE = "command line: --topology"
_TYPES = {  # nccl-tests' names
    **{"float": "float32", "half": "float16", "double": "float64"},
    **{"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"},
}


_NAMED = re.compile(r"([^\[\]]*)(?:\[(.*)\])?")
_ASKED_BY = {  # keys of a step -> bench's options
    **{"collective": "COLLECTIVE", "algorithm": "--algorithm", "sizes": "-b, -e", "dtype": "-d", "op": "-o"},
    **{"iterations": "-n", "warmup": "-w", "ranks": "-g"},
}
_OF_RANKS = re.compile(r"name the ones to take part: ranks: \[([0-9, ]*)\]")


@dataclass(frozen=True)
class Variant:
    """An algorithm with keys of its own for the step."""

    algorithm: str
    entry: Algorithm
    keys: Mapping[str, Any]


Entries = list[Variant]


@dataclass(frozen=True)
class Options:
    """What was asked for; texts as they were written."""

    collective: str
    algorithms: Sequence[str] = ()
    begin: str | None = None
    end: str | None = None
    factor: int | None = None
    increment: str | None = None
    ranks: int | None = None
    iterations: int = 1
    warmup: int = 0
    check: int = 1
    dtype: str = "float32"
    op: str | None = None
    root: str | None = None
    topology: str = "star"
    cc: str | None = None
    seed: int | None = None
    settings: Sequence[str] = ()


def experiment(options: Options) -> Experiment:
    """The experiment that measures it all. Raises InputError, which names the option at fault."""
    from testbed.experiment.overrides import changed, override

    entries = _entries(options)
    base, ranks = _fabric(options, entries)
    steps = list(_steps(options, entries, base, ranks))
    largest = max(size for step in steps for size in step["sizes"])
    buffers = 2 + (ranks - 1).bit_length()  # vector, staging and output of any algorithm
    if any(v.entry.own for v in entries):
        buffers = max(8, buffers)  # what is buffered has a place of its own, both ways
    values: dict[str, Any] = {
        "sweep": {},
        "workload": [{**step, "sizes": [f"{size}B" for size in step["sizes"]]} for step in steps],
        # And what Python and numpy need besides.
        "workers.memory": f"{max(base.workers.memory, buffers * largest + (256 << 20))}B",
    }
    if options.cc is not None:
        values["transport.cc"] = options.cc
    if options.seed is not None:
        values["seed"] = options.seed
    try:
        changed_base = changed(base, [(key, value, "command line") for key, value in values.items()], "command line")
    except InputError as error:
        found = Problem(error.what, error.where, error.hint, error.path), *error.also
        raise InputError.several(_as_typed(problem, entries, len(steps)) for problem in found) from None
    return override(changed_base, [setting for setting in options.settings if _of_workload(setting)])


def _as_typed(problem: Problem, variants: Entries, steps: int) -> Problem:
    """With the option in place of a step's key; the key of an algorithm's own stays with the algorithm."""
    if problem.path[:1] != ("workload",) or len(problem.path) < 2:
        return replace(problem, where=problem.where.replace("transport.cc", "--cc"))
    key = str(problem.path[2]) if len(problem.path) > 2 else "algorithm"
    variant = variants[int(problem.path[1]) * len(variants) // steps]  # of each algorithm there are as many steps
    option = _ASKED_BY.get(key, f"--algorithm: {key}") if key not in variant.keys else f"--algorithm: {key}"
    hint = _OF_RANKS.sub(lambda ranks: f"-g {len(ranks[1].split(','))}", problem.hint)
    return replace(problem, where=f"command line: {option}", hint=hint)


def everything(options: Options) -> tuple[Options, dict[str, str]]:
    """The options with every algorithm that fits this fabric and these options for `all`, and why others do not."""
    fit, left_out = [], {}
    if options.collective in registry.COLLECTIVES:
        for entry in registry.algorithms(options.collective):
            try:
                experiment(replace(options, algorithms=[entry.name]))
            except InputError as error:
                left_out[entry.name] = error.what
            else:
                fit.append(entry.name)
    named = (name for written in options.algorithms or ["all"] for name in (fit if written == "all" else [written]))
    return replace(options, algorithms=list(dict.fromkeys(named))), left_out


def types_left_out(options: Options) -> dict[str, str]:
    """With `-d all`, of each algorithm that does not have all types of the others: which it has."""
    if options.dtype != "all":
        return {}
    entries = _entries(options)
    most = dict.fromkeys(dtype for v in entries for dtype in v.entry.dtypes)
    lacks = [(v, [dtype for dtype in most if dtype not in v.entry.dtypes]) for v in entries]
    return {
        f"{short(v.algorithm)} in {', '.join(its)}": f"it has {', '.join(v.entry.dtypes)}" for v, its in lacks if its
    }


def _of_workload(setting: str) -> bool:
    """Whether a setting is of the workload: it can only be applied when the steps are made, all others before."""
    return setting.startswith("workload")


def _entries(options: Options) -> Entries:
    """The registry's entry of every algorithm that was asked for (for `auto`, of one that it may choose)."""
    if options.collective not in registry.COLLECTIVES:
        raise InputError(*_place(unknown("collective", options.collective, list(registry.COLLECTIVES)), "COLLECTIVE"))
    known = choices(options.collective)
    variants = []
    for written in options.algorithms or [_usual(options)]:
        algorithm, keys = _variant(written)
        if is_own(algorithm):
            algorithm = _own(options.collective, algorithm)
        elif algorithm not in known:
            what, hint = unknown("algorithm", algorithm, known)
            raise InputError(f"{what} of {options.collective}", "command line: --algorithm", hint)
        variants.append(Variant(algorithm, registry.any_of(options.collective, algorithm), keys))
    if any(variant in variants[:k] for k, variant in enumerate(variants)):
        raise InputError("an algorithm stands twice", "command line: --algorithm", "name each once")
    return variants


def _own(collective: str, algorithm: str) -> str:
    """A file's, seen from the folder in which the command is typed."""
    try:
        resolved = files.resolved(algorithm, Path.cwd())
        registry.find(collective, resolved)
    except (BadAlgorithm, registry.UnknownCollective) as error:
        line = f"line {error.line}: " if isinstance(error, BadAlgorithm) and error.line else ""
        raise InputError(f"{algorithm}: {line}{error.what}", "command line: --algorithm", error.hint) from None
    return resolved


def _usual(options: Options) -> str:
    """The first algorithm for as many ranks as nccl-tests would take: of `send_recv` not the one for two."""
    entries = registry.algorithms(options.collective)
    ranks = options.ranks or RANKS
    return next((e for e in entries if ranks <= (e.max_ranks or ranks)), entries[0]).name


def split(text: str) -> list[str]:
    """At the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _variant(text: str) -> tuple[str, dict[str, Any]]:
    """`ring[chunk=64KiB]`: an algorithm, and keys of its step."""
    match = _NAMED.fullmatch(text)
    pairs = [pair.partition("=") for pair in split(match[2] or "") if pair] if match else []
    if match is None or not all(key and equals for key, equals, _ in pairs):
        raise InputError(f"{text!r} is no algorithm", "command line: --algorithm", "such as ring, or ring[chunk=64KiB]")
    yaml = YAML(typ="safe")
    try:
        return match[1], {key.strip(): yaml.load(value) for key, _, value in pairs}
    except YAMLError:
        raise InputError(f"{text!r}: a value is no YAML", "command line: --algorithm") from None


def _fabric(options: Options, entries: Entries) -> tuple[Experiment, int]:
    """An experiment without a workload on the fabric that was asked for, and how many of its ranks take part."""
    if options.ranks is not None and options.ranks < 2:
        raise InputError(f"{options.ranks} ranks have nobody to talk to", "command line: -g", "at least 2")
    from testbed.experiment.overrides import override

    most = min((e.max_ranks for e in (v.entry for v in entries) if e.max_ranks is not None), default=None)
    with unproved():  # a file's workload is not asked for
        base = _loaded(options, options.ranks or min(RANKS, most or RANKS))
        base = override(base, [setting for setting in options.settings if not _of_workload(setting)])
    available = len(base.build_fabric().nics)
    usual = RANKS if options.topology in PRESETS else available
    ranks = options.ranks or min(usual, available, most or available)
    if ranks > available:
        what = f"{options.topology} has {available} ranks, not {ranks}"
        raise InputError(what, "command line: -g", "ask for fewer, or name a larger topology")
    return base, ranks


def _loaded(options: Options, ranks: int) -> Experiment:
    from testbed.experiment import load, loads

    topology, named = options.topology, {"name": f"bench-{options.collective}"}
    if topology in PRESETS:
        params = PRESETS[topology].of_ranks(ranks)
        if params is None:
            fit = [n for n in range(2, ranks + 9) if n != ranks and PRESETS[topology].of_ranks(n)]
            near = sorted(sorted(fit, key=lambda n: abs(n - ranks))[:4])
            what = f"{ranks} ranks make no {topology}"
            raise InputError(what, "command line: -g", f"near are {', '.join(map(str, near))}; or name a file")
        return loads(json.dumps({**named, "fabric": {"topology": {topology: params}}}), "command line")
    if topology.lstrip().startswith("{"):
        try:
            return loads(f"fabric:\n topology: {topology}", _INLINE, defaults=named)
        except InputError as error:
            raise InputError(error.what, error.where.replace(f"{_INLINE}:2", _INLINE), error.hint, error.also) from None
    if not Path(topology).suffix and not Path(topology).exists():
        what, hint = unknown("topology", topology, list(PRESETS))
        raise InputError(what, "command line: --topology", f"{hint}; or a YAML file with `fabric:`")
    return load(topology, named)


def _steps(options: Options, entries: Entries, base: Experiment, ranks: int) -> Iterator[dict[str, Any]]:
    fabric = base.build_fabric()
    for variant in entries:
        entry = variant.entry
        roots = _roots(options.root, entry, ranks)
        for dtype, op, root in product(_types(options.dtype, entry), _ops(options.op, entry), roots):
            if not combines(op, dtype):
                if "all" in (options.op, options.dtype):
                    continue
                what = f"{op} combines the bits of integers, not {dtype}"
                raise InputError(what, "command line: -o", "-d int32, or another integer")
            step: dict[str, Any] = {
                "collective": entry.collective.name,
                "algorithm": variant.algorithm,
                "sizes": _sizes(options, DTYPES[dtype]) if entry.collective.sized else [0],
                "dtype": dtype,
                "op": op,
                "iterations": options.iterations,
                "warmup": max(options.warmup, options.check - options.iterations),
                **variant.keys,
            }
            if root:
                step["ranks"] = [root, *(rank for rank in range(ranks) if rank != root)]
            elif ranks < fabric.ranks:
                order = ring_order(fabric) if variant.algorithm == "ring" else range(ranks)
                step["ranks"] = [rank for rank in order if rank < ranks]
            yield step


def _sizes(options: Options, width: int) -> list[int]:
    """nccl-tests' defaults are 32M for both ends. If the given end is on the other side of 32M, it is used for both."""
    begin = None if options.begin is None else notation.parse(options.begin, "-b")
    end = None if options.end is None else notation.parse(options.end, "-e")
    return notation.ladder(
        min(USUAL_BYTES, end or USUAL_BYTES) if begin is None else begin,
        max(USUAL_BYTES, begin or USUAL_BYTES) if end is None else end,
        width,
        factor=options.factor,
        increment=None if options.increment is None else notation.parse(options.increment, "-i"),
    )


def _types(text: str, entry: Algorithm) -> Sequence[str]:
    if text == "all":
        return entry.dtypes
    dtype = _TYPES.get(text, text)
    if dtype not in entry.dtypes:
        raise InputError(*_place(unknown("type", text, [*entry.dtypes, "all"]), "-d"))
    return [dtype]


def _ops(text: str | None, entry: Algorithm) -> Sequence[str | None]:
    if not entry.ops:
        if text is not None:
            raise InputError(f"{entry.collective.name} combines nothing", "command line: -o", "leave -o out")
        return [None]
    if text == "all":
        return entry.ops
    if text is not None and text not in entry.ops:
        what, hint = unknown("reduction", text, [*entry.ops, "all"])
        problem = what if text not in OPS else f"{entry} has no reduction {text!r}"
        raise InputError(problem, "command line: -o", hint)
    return [text or entry.ops[0]]


def _roots(text: str | None, entry: Algorithm, ranks: int) -> Sequence[int | None]:
    if not entry.collective.rooted:
        if text is not None:
            raise InputError(f"{entry.collective.name} has no root", "command line: -r", "leave -r out")
        return [None]
    if text == "all":
        return range(ranks)
    if text is not None and not (text.isascii() and text.isdecimal() and int(text[:9]) < ranks):
        raise InputError(f"{text!r:.20} is no root", "command line: -r", f"a rank from 0 to {ranks - 1}, or all")
    return [int(text or 0)]


def _place(unknown_name: tuple[str, str], option: str) -> tuple[str, str, str]:
    return unknown_name[0], f"command line: {option}", unknown_name[1]
