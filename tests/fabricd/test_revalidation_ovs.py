"""A real Open vSwitch confirms that its cache is purged."""

from __future__ import annotations

from controllers.openflow.revalidation import purge
from tests.parts.own_switch import own_switch


def test_a_real_open_vswitch_confirms_whatever_its_pid_file_says() -> None:
    with own_switch() as switch:
        (switch.ovs.dir / "ovs-vswitchd.pid").rename(switch.ovs.dir / "elsewhere")
        try:
            purge(switch.ovs.control)
        finally:
            (switch.ovs.dir / "elsewhere").rename(switch.ovs.dir / "ovs-vswitchd.pid")
