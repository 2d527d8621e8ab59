"""The views of a live fabric: tables as SONiC's commands and mlx5's tools print them.

One file a family of views, one entry a view. `testbed show`, prompts, programs and pages offer what stands in `VIEWS`.
"""

from __future__ import annotations

from testbed.live.views import (
    config,
    control,
    drops,
    ecn,
    flow_control,
    interfaces,
    job,
    lldp,
    logging,
    nics,
    queues,
    switches,
)
from testbed.live.views.view import View

FAMILIES = (interfaces, queues, flow_control, ecn, config, drops, lldp, logging, nics, switches, job, control)
VIEWS: dict[str, View] = {view.words: view for family in FAMILIES for view in family.VIEWS}
