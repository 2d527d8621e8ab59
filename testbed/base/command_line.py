"""Whether this process is the `testbed` command: in a notebook or a script others' code runs beside ours."""

from __future__ import annotations

ours = False  # testbed.cli sets it
