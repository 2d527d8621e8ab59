"""runc for an engine whose own root may not do all that root may: `as_allowed.py RUNC-ARGUMENT..`.

Engines ask for every capability and for limits of their own. In a container or a machine that lacks some, runc refuses
all of it, and so no privileged container starts there. What this process has not is taken out of what is asked for.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from tests.parts.privileged_root import capabilities


def allowed(spec: dict[str, Any]) -> dict[str, Any]:
    """A container's configuration without what cannot be given."""
    process, ours = spec["process"], set(capabilities())
    process["capabilities"] = {
        name: [one for one in asked if one in ours] for name, asked in process.get("capabilities", {}).items()
    }
    for limit in process.get("rlimits", []):
        most = resource.getrlimit(getattr(resource, limit["type"]))[1]
        if most != resource.RLIM_INFINITY:
            limit |= {"soft": min(limit["soft"], most), "hard": min(limit["hard"], most)}
    return spec


def main() -> None:
    given = sys.argv[1:]
    if "--bundle" in given:
        file = Path(given[given.index("--bundle") + 1], "config.json")
        file.write_text(json.dumps(allowed(json.loads(file.read_text()))))
    os.execvp("runc", ["runc", *given])


if __name__ == "__main__":
    main()
