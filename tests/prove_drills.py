"""Proof: every drill is one.

`./setup.sh prove drills [--seed S] [DRILL ...]`. Checks all drills (or those named) as `testbed drill check` does:
places can be drawn, what a student may see differs from the healthy twin's, the solver gets 80 points or more by what
a student may see, and finds nothing in the healthy twin. Prints a line a drill; exit 1 if one fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from testbed.commands._drill_check import check

    arguments = sys.argv[1:]
    options = [a for k, a in enumerate(arguments) if a.startswith("--") or (k and arguments[k - 1] == "--seed")]
    named = [a for a in arguments if a not in options]
    check.main([*options, *(named or (["--all"] if "--help" not in options else []))], prog_name="prove drills")


if __name__ == "__main__":
    main()
