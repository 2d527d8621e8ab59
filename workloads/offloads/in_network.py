"""All-reduce in the network: contributions go to accelerators on switches, sums come back (SwitchML).

What a rank's NIC does is hardware/fabricd/offload/aggregate/.  No slots, no accelerator, no controller, or
contributions that are not answered: then the ring does it, and the result says so (offloaded.py).
"""

from __future__ import annotations

from workloads.base import data
from workloads.offloads.offloaded import OneRequest
from workloads.parts.context import Context


class AllReduce(OneRequest):
    """One rank's part."""

    kind = "aggregate"

    def _arguments(self) -> tuple[int, ...]:
        return self.arguments(self.context)

    @staticmethod
    def arguments(context: Context) -> tuple[int, ...]:
        """Of the group."""
        plan = context.options["aggregation"]
        convert = int(context.costs.convert_bps or 0)
        return plan["slots"], plan["elements"], round(plan["timeout_ns"] * 1000), plan["retry"], convert

    def _post(self) -> None:
        self._request(self.vector, self.result, self.count, reduction=self.op, dtype=self.dtype.name)

    def _wrong(self) -> int:
        return data.count_wrong(self.out, self.inputs.reduced, self.start, self.device.progress)
