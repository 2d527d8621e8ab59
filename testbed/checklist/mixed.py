"""Different controls on one fabric: what each finds that the switches, which mark for all of them, have for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hardware import bounds
from testbed.checklist.finding import Case, Found, check, size
from testbed.plan.hardware import ecn_of

TIMES = 2
"""That a threshold may be off what a control would have by itself."""


def _mixes(case: Case) -> Iterator[str]:
    """Who shares a class."""
    of_class: dict[int, dict[str, str]] = defaultdict(dict)
    for path, sending, one in case.senders:
        where = "" if path == ("transport",) else f" ({'.'.join(map(str, path))})"
        of_class[one].setdefault(sending.cc.short, where)
    for one, controls in sorted(of_class.items()):
        if len(controls) > 1:
            yield f"class {one} is shared by {', '.join(name + where for name, where in controls.items())}"


@check("mixed controls", "where several share a class, its marks suit each of them", _mixes)
def mixed(case: Case) -> Found:
    ecn, transport, setting = case.experiment.fabric.switch.ecn, case.experiment.transport, case.basis.setting
    if ecn is None or (ecn.kmin is not None and ecn.kmax is not None):
        return
    kmin, _, _ = ecn_of(ecn, transport, setting)
    seen = {transport.cc.name}
    for path, sending, one in case.senders:
        control = sending.cc.control
        if control.name in seen or "marks" not in control.hears or one not in ecn.classes:
            continue
        seen.add(control.name)
        own, _, _ = control.marks(setting) if control.marks else bounds.ecn_profile(setting.line_rate_bps)
        if max(own, kmin) > TIMES * min(own, kmin):
            what = f"{sending.cc.short} would be marked from {size(own)} on by itself, and is from {size(kmin)} on: "
            what += f"left out, thresholds are those of transport.cc, {transport.cc.short}"
            yield what, (*path, "cc"), "fabric.switch.ecn: {kmin: .., kmax: ..}, or a class of its own"
