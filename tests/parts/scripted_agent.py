"""An agent for tests: sends the lines of its arguments, one after the other's answer, and prints answers on stderr.

`die` ends it with code 3, `hang` keeps it waiting for ever.
"""

from __future__ import annotations

import json
import sys
import time

for word in sys.argv[1:]:
    if word == "die":
        sys.exit(3)
    if word == "hang":
        time.sleep(1000)
    request = word if word.startswith("{") else json.dumps({"command": word})
    print(request, flush=True)
    print(sys.stdin.readline(), file=sys.stderr, end="")
