"""Trimming in the experiment file: what it means for switches, NICs and controls, and what does not fit."""

from __future__ import annotations

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, loads
from testbed.experiment.basis import Basis
from testbed.plan.hardware import hardware_of

FILE = """
name: trims
fabric:
  topology: {star: {hosts: 3}}
  switch: {%s}
transport: {cc: nscc}
"""


def experiment(switch: str) -> Experiment:
    return loads(FILE % (switch if "pfc" in switch else f"pfc: false, {switch}"))


def test_switches_and_nics_are_told_of_it() -> None:
    hardware = hardware_of(experiment("trimming: {classes: [3, 2], size: 64B, dscp: 12, queue: 5}"))
    assert hardware.switch["trimming"] == {"classes": [3, 2], "bytes": 64, "dscp": 12, "queue": 5}
    assert hardware.switch["dscp"]["12"] == 5 and hardware.switch["dscp"]["26"] == 3
    assert hardware.nic["trimmed_dscp"] == 12


def test_without_it_nobody_hears_of_it() -> None:
    hardware = hardware_of(experiment("trimming: null"))
    assert "trimming" not in hardware.switch and "trimmed_dscp" not in hardware.nic
    assert hardware == hardware_of(experiment("alpha: 0.125"))


@pytest.mark.parametrize(
    ("switch", "share"), [("trimming: {}", 0.75), ("trimming: {classes: [2]}", 1), ("alpha: 1", 1)]
)
def test_nscc_aims_at_a_shorter_queue_where_its_packets_are_trimmed(switch: str, share: float) -> None:
    """initNsccParams of uec.cpp: three quarters of a round trip, and quick adapt at four times that."""
    found = experiment(switch)
    params = hardware_of(found).nic["cc"]["params"]
    assert params["target_queue_ns"] == pytest.approx(share * Basis(found).setting.network_rtt_ns)
    assert params["quick_adapt_ns"] == pytest.approx(4 * params["target_queue_ns"])


@pytest.mark.parametrize(
    ("switch", "key", "what", "hint"),
    [
        ("pfc: true, trimming: {}", "classes", "class 3 is lossless", "fabric.switch.lossless"),
        ("pfc: true, trimming: {classes: [0], queue: 4}", "queue", "class 4 is lossless", "such as 6"),
        ("trimming: {queue: 3}", "queue", "class 3 is trimmed itself", "not among"),
        ("dscp: {26: 3, 36: 1}, trimming: {}", "dscp", "puts DSCP 36 into class 1", "queue: 1"),
        ("dscp: {26: 6}, trimming: {dscp: 26, classes: [0]}", "dscp", "DSCP 26 is that of data", "nothing else"),
        ("trimming: {dscp: 48}", "dscp", "DSCP 48 is that of", "nothing else"),
        ("trimming: {size: 63B}", "size", "63", "64"),
        ("trimming: {sise: 64B}", "sise", "unknown key", "size"),
    ],
)
def test_what_does_not_fit_is_named_at_its_key(switch: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as found:
        experiment(switch)
    said = f"{found.value} {found.value.hint}"
    assert f"fabric.switch.trimming.{key}" in said and what in said and hint in said
