"""Which buffers of an experiment's fabric pause a class, and when: as fabricd is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.plan.thresholds import Buffer, configured
from workloads.times.buffers import Room

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def rooms(experiment: Experiment, traffic_class: int) -> dict[str, Room]:
    """By node: its switches and NICs, where traffic of this class is lossless."""
    found: dict[str, Room] = {}
    if traffic_class not in experiment.fabric.switch.lossless:
        return found
    _, config = configured(experiment)
    for switch in config["switches"]:
        if traffic_class in switch["lossless"]:
            buffer = Buffer.of(switch)
            shared, offset = max(buffer.shared, 0), switch["xon_offset_bytes"]
            found[switch["name"]] = Room(buffer.reserve, shared, buffer.alpha, offset)
    for nic in config["nics"]:
        if nic["pfc"] and nic["rx_buffer_bytes"] and traffic_class in nic["lossless"]:
            found[nic["name"]] = Room(nic["rx_xoff_bytes"], resumes=nic["rx_xon_bytes"])
    return found
