"""What drawings of all kinds share: an SVG canvas, lines of text, rows whose middle is left out."""
