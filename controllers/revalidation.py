"""When new flows really meet the frames.

A barrier's reply says that a switch has taken in its flows.  Open vSwitch forwards by a cache of what it decided before
and brings that in line with the flows a moment later, in threads of its own.  So whoever must know that no frame meets
an old rule any more asks for that, too.
"""

from __future__ import annotations

import logging
import subprocess

TIMEOUT_S = 5


def revalidated() -> None:
    """Returns when the caches of Open vSwitch's bridges agree with their flows.

    Where bridges of both datapaths exist it cannot be waited for; then what is cached is thrown away.
    """
    errors = [_ask("wait")]
    if errors[0]:
        errors.append(_ask("purge"))
    if all(errors):
        logging.getLogger("railbed").warning("revalidator: %s", "; ".join(map(str, errors)))


def _ask(what: str) -> str | None:
    """None, or what went wrong."""
    command = ["ovs-appctl", f"--timeout={TIMEOUT_S}", f"revalidator/{what}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return " ".join(done.stderr.split()) or "failed" if done.returncode else None
