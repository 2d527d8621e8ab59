"""What a picture is for: a screen, a column of a paper, a slide.

Pictures are drawn for a screen, 8 inches wide. Another style has another width, and its letters and lines another size
on it, so labels are thinned out for the room that is there. A paper's figure has its words in the caption: it has no
title.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATEX = ("xelatex", "lualatex", "pdflatex")
"""One of them measures the text of a .pgf picture."""


@dataclass(frozen=True)
class Style:
    """Width in inches; heights, letters and lines, as shares of the screen's."""

    width: float = 8.0
    height: float = 1.0
    letters: float = 1.0
    lines: float = 1.0
    title: bool = True

    @property
    def room(self) -> float:
        """How many letters stand side by side, as a share of the screen's."""
        return self.width / STYLES["screen"].width / self.letters


STYLES = {
    "screen": Style(),
    "paper": Style(width=3.5, height=0.6, letters=0.875, lines=0.7, title=False),  # a column of two, letters of 7 pt
    "slides": Style(width=10.0, height=1.25, letters=1.75, lines=1.75),  # 16:9, letters of 14 pt
}
_style: ContextVar[Style] = ContextVar("_style", default=STYLES["screen"])


def style() -> Style:
    """That in which pictures are drawn now."""
    return _style.get()


@contextmanager
def styled(name: str) -> Iterator[None]:
    """Pictures drawn and saved meanwhile have that style, of STYLES. Their letters are stored as letters in PDF."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcParams.update({"pdf.fonttype": 42, "pgf.rcfonts": False})
        if latex := next((one for one in LATEX if shutil.which(one)), None):
            matplotlib.rcParams["pgf.texsystem"] = latex
        token = _style.set(STYLES[name])
        try:
            yield
        finally:
            _style.reset(token)


def put_on(figure: Figure) -> None:
    """Gives a picture that has been drawn the style's sizes."""
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    now = style()
    if now == STYLES["screen"]:
        return
    if not now.title:
        figure.suptitle("")
    for text in figure.findobj(Text):
        text.set_fontsize(float(text.get_fontsize()) * now.letters)
    for line in figure.findobj(Line2D):
        line.set_linewidth(float(line.get_linewidth()) * now.lines)
        line.set_markersize(float(line.get_markersize()) * now.lines)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = axis.get_major_ticks()
            if ticks:  # what is drawn only when it is looked at takes its size from here
                axis.set_tick_params(labelsize=ticks[0].label1.get_fontsize())
