"""Reports of the controller to the program that started it: JSON lines on standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from controllers.apps import AppError


def say(message: dict[str, Any]) -> None:
    """Prints one line; the reader may have gone."""
    try:
        print(json.dumps(message), flush=True)
    except OSError:
        sys.stdout = None


def fail(what: str, where: str = "") -> None:
    """Report an error, and end.  `where` is a line of an application."""
    say({"error": what} | ({"where": where} if where else {}))
    os._exit(1)


def fail_app(error: AppError) -> None:
    """End because of an application."""
    fail(error.what, error.where)
