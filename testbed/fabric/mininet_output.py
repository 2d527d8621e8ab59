"""Mininet's output: results on stdout, errors on stderr. When the reader has gone, the program ends quietly."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from mininet.log import StreamHandlerNoNewline, lg


class _Output(StreamHandlerNoNewline):
    """Ends the program when its reader has gone (`testbed shell -c net | head -1`), without a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            nobody_reads()
        super().handleError(record)


def nobody_reads() -> NoReturn:
    """Ends the program quietly, with the exit code of SIGPIPE."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # Python writes what is left in them at its end
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
    lg.handlers[:] = [results, errors]
