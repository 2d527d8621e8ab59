"""`testbed probe`: latency and bandwidth between NICs of a live fabric."""

from __future__ import annotations

from testbed.commands._entries import Entries, Makers


def _tools() -> Makers:
    from testbed.commands import _tools

    return _tools.under("probe")


command = Entries(
    "probe",
    more=_tools,
    help="Measure latency and bandwidth between NICs of a live fabric.\n\nA probe takes emulated time, as it would.\n\n"
    "\b\nExamples:\n  testbed probe lat 0 3\n  testbed probe bw 0 3 --size 4MiB\n  testbed probe mesh\n",
    context_settings={"help_option_names": ["-h", "--help"]},
)
