"""Text from programs, files and peers that are not trusted, made fit for a terminal."""

from pathlib import Path


def printable(text: str) -> str:
    """Control characters (but tabs) are replaced by escapes such as \\x1b."""
    return "".join(c if c == "\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fit(text: str) -> str:
    """The same of several lines: what others have written (a log, a file, a peer) is shown on a terminal by this."""
    return "\n".join(map(printable, text.split("\n")))


def tail(log: Path) -> str:
    """The end of a log, as one line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return " ".join(text.split())[-300:] or "it said nothing"
