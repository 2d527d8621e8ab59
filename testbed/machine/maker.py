"""Who has brought a fabric up: so that nobody takes down another's unawares."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from testbed.machine.mounts import CHECKOUT


@dataclass(frozen=True)
class Maker:
    """The user, whom sudo may have made root, and the checkout that he did it from."""

    user: str = ""
    checkout: str = ""

    @classmethod
    def here(cls) -> Maker:
        try:
            user = pwd.getpwuid(int(os.environ.get("SUDO_UID", os.getuid()))).pw_name
        except (ValueError, KeyError):  # a container may have no name for its user
            user = str(os.getuid())
        return cls(user, str(CHECKOUT))
