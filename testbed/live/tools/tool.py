"""A tool: a command that takes emulated time, one entry of the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.base.errors import InputError
from testbed.fabric.lab import Lab
from testbed.live.look.table import Table
from testbed.live.look.world import AnyHeld
from testbed.live.tools.site import Site
from testbed.words.entry import Entry
from testbed.words.kinds import Wrong


@dataclass(frozen=True, kw_only=True)
class Tool(Entry):
    """`use(site, **parameters)` makes its tables; it raises Wrong for what cannot be done."""

    use: Callable[..., list[Table]]

    def run(self, on: Lab | AnyHeld, stop: Callable[[], bool] = lambda: False, **values: Any) -> list[Table]:
        """On a live fabric or a world; there `stop` ends it before its time. Raises InputError."""
        try:
            return self.use(Site(on, stop), **{name: value for name, value in values.items() if value is not None})
        except Wrong as wrong:
            raise InputError(wrong.what, self.words, wrong.hint) from None
