"""nccl-tests' notation of sizes and its ladder from the smallest to the largest."""

from __future__ import annotations

import re
from decimal import Decimal

from testbed.base.errors import InputError
from testbed.base.units import UnitError, format_size, parse_size

MOST_SIZES = 1000  # of one step of an experiment
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*([kKmMgG]?)")


def parse(text: str, option: str) -> int:
    """`1K` -> 1024, `8M`, `1G`, `512`, as nccl-tests reads them (binary), and this project's `1KiB`, `1KB` (decimal).

    Raises InputError that names `option`.
    """
    if match := _NUMBER.fullmatch(text.strip()):
        size = Decimal(match[1]) * _BINARY[match[2].upper()]
        if size != size.to_integral_value():
            raise InputError(f"{text!r} is not a whole number of bytes", _where(option))
        return int(size)
    try:
        return parse_size(text)
    except UnitError as error:
        raise InputError(error.what, _where(option), "write 512, 1K, 8M, 1G (binary, as nccl-tests) or 16MiB") from None


def ladder(begin: int, end: int, width: int, *, factor: int | None = None, increment: int | None = None) -> list[int]:
    """All sizes from `begin` to `end`, each the one before times `factor` or plus `increment` (default: 1 MiB).

    As nccl-tests does it, a size is cut to a whole number of elements of `width` bytes. Raises InputError.
    """
    if begin > end:
        what = f"the smallest size, {format_size(begin)}, is above the largest, {format_size(end)}"
        raise InputError(what, "command line: -b, -e", "-b is where the sizes begin, -e is where they end")
    if factor is not None and increment is not None:
        raise InputError("sizes grow by a factor or by an increment, not both", "command line: -f, -i", "leave one out")
    if factor is not None and factor < 2:
        raise InputError(f"by a factor of {factor} no size grows", _where("-f"), "a whole number from 2 on")
    if increment is not None and increment < width:
        what = f"{increment} bytes are less than one element of {width}"
        raise InputError(what, _where("-i"), "at least one element")
    if begin < width:
        raise InputError(f"{begin} bytes are less than one element of {width}", _where("-b"), f"at least {width}")
    sizes = []
    size = begin
    while size <= end:
        sizes.append(size - size % width)
        if len(sizes) > MOST_SIZES:
            hint = "take a larger factor (-f) or increment (-i)"
            raise InputError(f"more than {MOST_SIZES} sizes", "command line: -b, -e", hint)
        size = size * factor if factor else size + (increment or 1 << 20)
    return list(dict.fromkeys(sizes))


def _where(option: str) -> str:
    return f"command line: {option}"
