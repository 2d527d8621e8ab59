"""`python -m railbed.gallery [NAME..]`: makes entries again, then the page and the pictures."""

from __future__ import annotations

import sys

from railbed.gallery.entry import entries
from railbed.gallery.kept import keep, kept
from railbed.gallery.making import make
from railbed.gallery.page import PAGE, PICTURES, page
from railbed.gallery.picture import draw
from testbed.base.errors import UserError


def main() -> None:
    known = entries()
    asked = entries(tuple(sys.argv[1:]))
    figures = {name: made for name, made in kept().items() if name in {entry.name for entry in known}}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for entry in asked:
        figures[entry.name] = made = make(entry)
        for value in entry.values:
            ours = made.values[value.about]
            said = f"{entry.name}: {value.about}: {ours:.4g} {value.unit}".rstrip()
            print(f"{said}, ratio {value.ratio(ours):.2f}", flush=True)
        draw(entry, made, PICTURES / f"{entry.name}.svg")
        keep(figures)
        PAGE.write_text(page(known, figures))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(f"gallery: error: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(error.exit_code)
