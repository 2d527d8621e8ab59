"""Tools for drawings of all kinds: an SVG canvas, lines of text, rows whose middle is left out."""
