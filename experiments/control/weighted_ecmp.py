"""Weighted ECMP: a leaf sends three flows of four by spine0 and one by spine1.

The routes stay the controller's: which ports are on a shortest path, and what happens when one fails.  Only the shares
of equal ports are changed, in the tables that the controller is about to install.
"""

from ryu.base import app_manager

from controllers.apps import Railbed
from controllers.flows import reweighted

WEIGHTS = {"spine0": 3, "spine1": 1}  # others: 1


class WeightedEcmp(app_manager.RyuApp):
    _CONTEXTS = {"railbed": Railbed}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.railbed = kwargs["railbed"]

    def tables(self, tables, down):
        return {switch: reweighted(flows, self.weights(switch)) for switch, flows in tables.items()}

    def weights(self, switch):
        """A port's weight, by the switch at the other end of its cable."""
        cable_at = self.railbed.fabric.cable_at
        return lambda port: WEIGHTS.get(cable_at[switch, port].other(switch).node, 1)
