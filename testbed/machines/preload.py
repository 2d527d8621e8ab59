"""What every point's process needs. They are forked from one that has it, so that it is there once a machine.

That is modules, and what pydantic and the YAML reader build at first use: a small experiment is read, planned and
written for it.
"""

from __future__ import annotations

import pyarrow.parquet

import controllers.flows
import controllers.openflow.vswitchd
import results
import testbed.fabric.flow_tables
import testbed.fabric.lab
import testbed.machines.point
from results.store import environment
from testbed.base import yaml_writer
from testbed.containers import forked
from testbed.experiment import loads

WANTED = (controllers, pyarrow.parquet, results, testbed.fabric, testbed.machines.point, yaml_writer)
_SMALL = """
name: small
fabric: {topology: {star: {hosts: 2}}}
workload: [{collective: all_reduce, sizes: [1KiB]}, {flows: [{from: 1, to: 0, size: 1KiB}]}]
"""

forked.server().begin()  # which serves all points
environment.environment(0)  # asks the tools for their versions
experiment = loads(_SMALL)
experiment.resolved()
