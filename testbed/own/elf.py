"""A shared object, read without loading it: what it asks of others, what it would change or run, what it defines."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_HEADER, _SECTION, _SYMBOL = struct.Struct("<16s2HI3QI6H"), struct.Struct("<2I4Q2I2Q"), struct.Struct("<I2BH2Q")
_WRITE, _ALLOCATED, _SYMTAB, _DYNAMIC, _DYNSYM = 1, 2, 2, 6, 11
_RELA, _RELOCATION, _ADDRESS = 4, struct.Struct("<2Qq"), struct.Struct("<q")
_OBJECT, _TLS, _IFUNC = 1, 6, 10
_LINKERS = (".data.rel.ro", ".dynamic", ".got", ".relro_padding")
_TAG = struct.Struct("<qQ")
_AT_LOADING = (12, 13, 25, 26, 32)  # INIT, FINI, INIT_ARRAY, FINI_ARRAY, PREINIT_ARRAY: by name (_init) or attribute


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    name: str
    kind: int
    section: int  # 0: somebody else's
    value: int
    size: int


class Elf:
    """Of 64 bits, little endian, as the compiler has written it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def sections(self) -> list[Section]:
        head = _HEADER.unpack_from(self._content)
        start, each, count, names = head[6], head[11], head[12], head[13]
        rows = [_SECTION.unpack_from(self._content, start + k * each) for k in range(count)]
        return [Section(self._text(rows[names][4] + r[0]), r[1], r[2], r[3], r[4], r[5], r[6]) for r in rows]

    def symbols(self, kind: int) -> list[Symbol]:
        found = []
        for section in self.sections:
            if section.kind == kind:
                texts = self.sections[section.link].offset
                for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                    name, info, _, where, value, size = _SYMBOL.unpack_from(self._content, at)
                    found.append(Symbol(self._text(texts + name), info & 15, where, value, size))
        return found

    def undefined(self) -> list[str]:
        return [s.name for s in self.symbols(_DYNSYM) if s.section == 0 and s.name]

    def variables(self) -> list[str]:
        """What could be written to that is not the linker's."""
        writable = {
            k
            for k, s in enumerate(self.sections)
            if s.flags & _WRITE and s.flags & _ALLOCATED and s.size and not s.name.startswith(_LINKERS)
        }
        return [s.name for s in self.symbols(_SYMTAB) if s.section in writable and s.kind in (_OBJECT, _TLS)]

    def at_loading(self) -> bool:
        """Whether anything would run before it is called."""
        tags = (
            _TAG.unpack_from(self._content, at)[0]
            for s in self.sections
            if s.kind == _DYNAMIC
            for at in range(s.offset, s.offset + s.size, _TAG.size)
        )
        return any(tag in _AT_LOADING for tag in tags) or any(s.kind == _IFUNC for s in self.symbols(_SYMTAB))

    def data(self, name: str) -> bytes | None:
        """What a symbol stands for; addresses in it are those that they have in the file, whatever comes of them."""
        for symbol in self.symbols(_DYNSYM):
            if symbol.name == name and symbol.section:
                section = self.sections[symbol.section]
                at = section.offset + symbol.value - section.address
                data = bytearray(self._content[at : at + symbol.size])
                for place, address in self._addresses():
                    if 0 <= place - symbol.value <= symbol.size - 8:
                        _ADDRESS.pack_into(data, place - symbol.value, address)
                return bytes(data)
        return None

    def _addresses(self) -> Iterator[tuple[int, int]]:
        """What the loader fills in, and where."""
        for section in self.sections:
            if section.kind == _RELA:
                for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                    place, _, address = _RELOCATION.unpack_from(self._content, at)
                    yield place, address

    def _text(self, at: int) -> str:
        return self._content[at : self._content.index(b"\0", at)].decode(errors="replace")
