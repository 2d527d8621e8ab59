"""Imports numpy's core, and the rest of numpy when something of it is asked for: half the time, for each rank.

numpy's package imports its library, its matrices and linear algebra, and gives every function its documentation and
signature. What ranks do with arrays is in the core. Names of the rest are left out here, and found on use; who asks for
all names (`dir`, `from numpy import *`) imports the rest.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False  # typing takes as long as a tenth of numpy's core
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_LATER = ("numpy.lib", "numpy.matrixlib")
_AFTER_LIB = ("numpy.linalg", "numpy.matrixlib")  # they import each other, and can only begin with numpy.lib
_NEVER = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")  # texts for help()


class _Named:
    """Stands for `name` in a module that has not been imported."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def get(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)


class _StandIn(ModuleType):
    """Stands for a module while numpy's package is imported."""

    listed = False  # its names are among numpy's own

    @property
    def __all__(self) -> Sequence[str]:
        self.listed = True
        return ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks
            raise AttributeError(name)
        return _Named(self.__name__, name)

    def get(self) -> ModuleType:
        return importlib.import_module(self.__name__)


class _Finder:
    """Finds and loads what comes later; importlib.abc has bases for such a class, which take long to import."""

    importing = True  # numpy's package

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if self.importing:
            later = any(name == one or name.startswith(f"{one}.") for one in _LATER)
            return self._spec(name, name in _LATER) if later or name in _NEVER else None
        if name in _AFTER_LIB and "numpy.lib" not in sys.modules:
            importlib.import_module("numpy.lib")  # imports them, too
            return self._spec(name, True)
        return None

    def _spec(self, name: str, is_package: bool) -> ModuleSpec:
        loader: Any = self
        return ModuleSpec(name, loader, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name) if self.importing else sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        pass


class _NoTexts(ModuleType):
    """Stands for `inspect` while numpy's package is imported: help() is not for ranks."""

    @staticmethod
    def cleandoc(text: str) -> str:
        return text

    @staticmethod
    def signature(function: object) -> None:
        pass


@contextmanager
def _quick_modules() -> Iterator[None]:
    """In place of what takes numpy long to import: `inspect`, and the half of `datetime` that is in Python."""
    stand_ins: dict[str, ModuleType] = {"inspect": _NoTexts("inspect")}
    if "datetime" not in sys.modules:
        stand_ins["datetime"] = importlib.import_module("_datetime")
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def import_core() -> None:
    """Imports numpy this way, unless it has been imported already, or another thread might import it meanwhile."""
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    if "numpy" in sys.modules or not alone:
        return
    finder: Any = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with _quick_modules():
            import numpy
    finally:
        finder.importing = False
        stand_ins = {name: module for name, module in sys.modules.items() if isinstance(module, _StandIn)}
        for name in stand_ins:
            del sys.modules[name]
    later = {name: value for name, value in vars(numpy).items() if isinstance(value, (_Named, _StandIn))}
    for name in later:
        delattr(numpy, name)
    listed = [name for name, module in stand_ins.items() if module.listed]
    exported = vars(numpy).pop("__all__")
    others, names = numpy.__getattr__, numpy.__dir__

    def get(name: str) -> Any:
        if name == "__all__":
            value: Any = list(
                {*exported, *(one for module in listed for one in importlib.import_module(module).__all__)}
            )
        elif name in later:
            value = later[name].get()
        else:
            return others(name)
        setattr(numpy, name, value)
        return value

    def every() -> list[str]:
        for name in ("__all__", *later):
            getattr(numpy, name)
        return list(names())

    vars(numpy).update(__getattr__=get, __dir__=every)
