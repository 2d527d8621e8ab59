"""What Mininet writes: results on stdout, errors on stderr, and an end without a traceback when nobody reads."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from mininet.log import StreamHandlerNoNewline, lg


class _Output(StreamHandlerNoNewline):
    """Ends with whoever read what it writes (`testbed shell -c net | head -1`), without a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            nobody_reads()
        super().handleError(record)


def nobody_reads() -> NoReturn:
    """Ends the program as one whose reader has gone: quietly, with what SIGPIPE gives."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # what they still hold is written when Python ends
        os.dup2(nowhere, stream.fileno())
    raise SystemExit(128 + signal.SIGPIPE)  # an OSError would be caught by Mininet, which would go on


def log_to_stdout() -> None:
    """Mininet writes everything to stderr; a script wants results on stdout, errors on stderr."""
    results, errors = _Output(sys.stdout), _Output(sys.stderr)
    results.addFilter(lambda record: record.levelno < logging.WARNING)
    errors.setLevel(logging.WARNING)
    for old in lg.handlers[:]:
        results.setFormatter(old.formatter)
        errors.setFormatter(old.formatter)
        lg.removeHandler(old)
    lg.addHandler(results)
    lg.addHandler(errors)
