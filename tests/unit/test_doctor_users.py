"""What an ordinary user is told by checks that only root can carry out: what he can see, and no more."""

from __future__ import annotations

import pytest

from testbed.doctor.findings import Examination, Lack, NotInstalled

UNKNOWN = ("warn", "not known: only root can look")


@pytest.mark.parametrize(
    ("uid", "by_root", "lack", "shown"),
    [
        (1000, True, Lack("no TAP devices", "no port", "modprobe tun", fatal=True), UNKNOWN),
        (1000, True, NotInstalled("runc is not installed", "no ranks", ["runc"], fatal=True),
         ("fail", "runc is not installed")),
        (1000, False, Lack("3 MiB free", "no room", "make some"), ("warn", "3 MiB free")),
        (0, True, Lack("no TAP devices", "no port", "modprobe tun", fatal=True), ("fail", "no TAP devices")),
        (1000, True, ValueError("odd"), UNKNOWN),
        (0, True, ValueError("odd"), ("warn", "could not be checked: ValueError: odd")),
    ],
)  # fmt: skip
def test_what_root_alone_can_see_is_unknown_to_others(
    monkeypatch: pytest.MonkeyPatch, uid: int, by_root: bool, lack: Exception, shown: tuple[str, str]
) -> None:
    def look() -> str:
        raise lack

    monkeypatch.setattr("os.geteuid", lambda: uid)
    diagnosis = Examination("x", look, vital=True, by_root=by_root)()
    assert (diagnosis.status, diagnosis.found) == shown
    assert diagnosis.cost == (lack.cost if isinstance(lack, Lack) else "it is not known whether a run works")
