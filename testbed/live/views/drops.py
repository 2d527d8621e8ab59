"""What a live fabric has dropped (SONiC's `show dropcounters counts`)."""

from __future__ import annotations

from testbed.live.look.look import Look
from testbed.live.look.table import Table
from testbed.live.views.view import counting


def drops(look: Look) -> list[Table]:
    """As `show dropcounters counts`: where, why, how many, and the last one's headers."""
    return [Table("drops", "", [row for row in look.counts["drops"] if row["count"]])]


VIEWS = (counting(words="drops", about="Show what a live fabric has dropped, where and why.", make=drops),)
