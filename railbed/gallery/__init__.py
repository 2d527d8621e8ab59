"""Figures of papers, made again: what was published, ours beside it (docs/gallery.md).

`python -m railbed.gallery [NAME..]` in a checkout runs them and writes the page, its pictures and the figures.
"""

from railbed.gallery.entry import ABOUT, AT_LEAST, AT_MOST, Curve, Entry, Made, Point, Value, entries
from railbed.gallery.making import make

__all__ = ["ABOUT", "AT_LEAST", "AT_MOST", "Curve", "Entry", "Made", "Point", "Value", "entries", "make"]
