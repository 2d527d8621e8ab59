"""Text from programs that are not trusted, made fit for a terminal."""


def printable(text: str) -> str:
    """Control characters (but tabs) are replaced by escapes such as \\x1b."""
    return "".join(c if c == "\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
