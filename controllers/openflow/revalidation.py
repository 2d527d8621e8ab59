"""When new flows take effect on frames.

A barrier's reply says that a switch has accepted its flows.  But Open vSwitch forwards by a cache of earlier
decisions, which its own threads bring up to date within half a second.  To be sure that no frame meets an old rule,
the cache is emptied; the next frame of each kind is then decided anew.

ovs-vswitchd does so on the command `revalidator/purge`, and answers when it is done.
"""

from __future__ import annotations

from pathlib import Path

from controllers.openflow import vswitchd


class NotPurged(Exception):
    """Open vSwitch has not confirmed that its cache is empty: old rules may be in force for another half a second."""


def purge(control: Path, timeout_s: float = vswitchd.TIMEOUT_S) -> None:
    """Returns when no earlier decision of Open vSwitch is in force any more.  Raises NotPurged."""
    try:
        vswitchd.command(control, "revalidator/purge", timeout_s=timeout_s)
    except vswitchd.CommandFailed as refused:
        raise NotPurged(str(refused)) from None
