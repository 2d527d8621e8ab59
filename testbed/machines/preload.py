"""What every point's process imports. They are forked from one that has it, so it is imported once a machine."""

from __future__ import annotations

import pyarrow.parquet

import results
import testbed.fabric.lab
import testbed.machines.point
from results.store import environment
from testbed.plan import plan

WANTED = (pyarrow.parquet, results, testbed.fabric.lab, testbed.machines.point, plan)
environment.environment(0)  # asks the tools for their versions
