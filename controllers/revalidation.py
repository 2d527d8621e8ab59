"""When new flows really meet the frames.

A barrier's reply says that a switch has taken in its flows.  Open vSwitch forwards by a cache of what it decided
before, and brings that in line later, in threads of its own: within half a second.  Whoever must know that no
frame meets an old rule any more has that cache thrown away; the next frame of each kind is decided anew.
"""

from __future__ import annotations

import logging
import subprocess

TIMEOUT_S = 5


def revalidated() -> None:
    """Returns when nothing that Open vSwitch has decided before is in force any more."""
    command = ["ovs-appctl", f"--timeout={TIMEOUT_S}", "revalidator/purge"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        logging.getLogger("railbed").warning("revalidator/purge: %s", getattr(error, "stderr", None) or error)
