"""What a live fabric has dropped (SONiC's `show dropcounters counts`, and what just happened)."""

from __future__ import annotations

from typing import Any

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views import ports
from testbed.live.views.view import counting


def drops(look: Look) -> list[Table]:
    """Where, why, how many, and the last one's headers."""
    rows = [row for row in look.counts["drops"] if row["count"]]
    if look.sight.drops == "all":
        return [Table("drops", "", rows)]
    if look.sight.drops == "asic":
        return [Table("drops", "These switches count no drops: compare what the two ends of a cable count", [])]
    headers = {(row["node"], row["port"]): row["headers"] for row in rows if row["reason"] == "fault"}
    seen: list[dict[str, Any]] = [row for row in rows if row["reason"] != "fault"]
    for p in look.counts["ports"]:
        for reason, count in ports.called(look, p).items():
            last = "" if reason == "crc" else headers.get((p["node"], p["port"]), "")  # a damaged one has none to read
            seen.append({"node": p["node"], "port": p["port"], "reason": reason, "count": count, "headers": last})
    if look.sight.drops == "counters":
        seen = [{k: v for k, v in row.items() if k != "headers"} for row in seen]
    return [Table("drops", "", sorted(seen, key=lambda row: (row["node"], row["port"], row["reason"])))]


VIEWS = (counting(words="drops", about="Show what a live fabric has dropped, where and why.", make=drops),)
