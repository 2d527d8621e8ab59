"""Modules of Python's library that are imported when something of them is asked for.

importlib.util.LazyLoader has that, too, but Python 3.11 imports such a module as soon as a second module names it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Later(ModuleType):
    """Stands for a module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def put_off(*names: str) -> None:
    """Imports these modules on use, unless they have been imported already."""
    for name in names:
        sys.modules.setdefault(name, _Later(name))
