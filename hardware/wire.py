"""The worker socket's numbers and layouts, from fabricd's tables.

`python -m hardware.protocol` writes them into workloads/verbs/wire.py, between two marks: where ranks run there may be
neither a compiler nor these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from hardware.tables import FABRICD, entries

CLIENT = FABRICD.parents[1] / "workloads" / "verbs" / "wire.py"
BEGIN, END = "# tables: written by `python -m hardware.protocol`\n", "# end of the tables\n"
COMMANDS, REPLIES, RECORDS = "worker/commands.def", "worker/replies.def", "records/records.def"
STATUSES = "transport/status.def"

_PARENTHESES = re.compile(r"\([^()]*\)")
_FIELD = re.compile(r"(?:(\d+) x )?\bu(8|16|32|64)\b([^,;:.]*)|\b(\d+) bytes\b([^,;:.]*)")
_LETTER = {"8": "B", "16": "H", "32": "I", "64": "Q"}


def layout(fields: str, size: int) -> tuple[str, list[str]]:
    """The struct format and the names of a body's fields, up to `size` bytes. Raises ValueError.

    `fields` is as in "u32 tag, u16 flags (1: ..), 8 x u64 arguments"; text in parentheses is a comment.
    """
    code, names, offset = "<", [], 0
    for times, bits, name, nbytes, of_bytes in (m.groups() for m in _FIELD.finditer(_PARENTHESES.sub("", fields))):
        if offset >= size:
            break
        code += f"{nbytes}s" if nbytes else f"{times or ''}{_LETTER[bits]}"
        names.append((of_bytes or name or "").strip())
        offset += int(nbytes) if nbytes else int(times or 1) * int(bits) // 8
    if offset != size:
        raise ValueError(f"{size} bytes, of which the words describe {offset}: {fields}")
    return code, names


def choices(fields: str, name: str) -> dict[str, int]:
    """The values of a field, listed behind it as in "reduction (0 sum, 1 min)"."""
    (listed,) = re.findall(rf"{name} \(([^()]*)\)", fields)
    return {word: int(number) for number, word in (one.split() for one in listed.split(","))}


def _constants(numbers: dict[str, int]) -> Iterator[str]:
    yield from (f"{name} = {number}\n" for name, number in numbers.items())
    yield "\n"


def _comment(fields: list[str], indent: str = "") -> Iterator[str]:
    for line in wrap(", ".join(fields), 118 - len(indent)):
        yield f"{indent}# {line}\n"


def _dict(name: str, items: dict[str, str]) -> Iterator[str]:
    yield f"{name} = {{\n"
    yield from (f"    {key}: {value},\n" for key, value in items.items())
    yield "}\n"


def client() -> Iterator[str]:
    """The lines between the marks."""
    commands = {name: (int(n), int(size), words) for n, name, _, size, _, words in entries(COMMANDS)}
    hello, send, offload = (commands[name][2] for name in ("HELLO", "POST_SEND", "POST_OFFLOAD"))
    for name in ("magic", "version"):
        (value,) = re.findall(name + r" (\w+)", hello)
        yield f"{name.upper()} = {value}\n"
    yield "\n"
    yield from _constants({name: number for name, (number, _, _) in commands.items()})
    yield "BODY = {\n"
    for name, (_, size, words) in commands.items():
        code, fields = layout(words, size)
        yield from _comment(fields or ["nothing"], "    ")
        yield f'    {name}: Struct("{code}"),\n'
    yield "}\n\n"
    replies = {name: (int(n), int(size), words) for n, name, size, _, words in entries(REPLIES)}
    yield from _constants({name: number for name, (number, _, _) in replies.items()})
    for name, (_, size, words) in replies.items():
        if size:
            code, fields = layout(words, size)
            yield from _comment(fields)
            yield f'{name}_BODY = Struct("{code}")\n'
    yield "\n"
    records = entries(RECORDS)
    yield from _constants({name: int(number) for number, name, *_ in records})
    yield f"RECORD_KINDS = frozenset(range(1, {len(records) + 1}))\n"
    yield f"WITH_DATA = frozenset(({', '.join(name for _, name, _, behind in records if behind)}))\n"
    yield '"""Records behind which something stands."""\n\n'
    yield from _constants(choices(send, "opcode"))
    for name in ("reduction", "element"):
        yield from _dict(f"{name.upper()}S", {f'"{key}"': str(n) for key, n in choices(offload, name).items()})
    yield from _dict("STATUS", {number: f'"{words}"' for number, _, words in entries(STATUSES)})


def written(source: str) -> str:
    """The client with its tables as the sources have them now."""
    before, _, rest = source.partition(BEGIN)
    return before + BEGIN + "".join(client()) + END + rest.partition(END)[2]


def main(file: Path = CLIENT) -> None:
    file.write_text(written(file.read_text()))
