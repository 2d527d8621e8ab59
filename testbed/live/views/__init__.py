"""The views of a live fabric: tables as SONiC's commands and mlx5's tools print them.

One file a family of views, one entry a view. `testbed show`, prompts, programs and pages offer what stands in `VIEWS`.
"""

from __future__ import annotations

from testbed.live.views import (
    cables,
    config,
    control,
    drops,
    ecn,
    interfaces,
    job,
    lldp,
    logging,
    nics,
    pfc,
    queues,
    switches,
)
from testbed.live.views.view import View

FAMILIES = (interfaces, cables, queues, pfc, ecn, config, drops, lldp, logging, nics, switches, job, control)
VIEWS: dict[str, View] = {view.words: view for family in FAMILIES for view in family.VIEWS}
