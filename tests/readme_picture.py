"""The picture of the README: `python -m tests.readme_picture`.

A clos under an incast is run, reported, and the report's network photographed in Chromium.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from testbed.experiment import load
from testbed.experiment.overrides import override
from testbed.report.html import report
from testbed.run.run import run
from tests.parts.pages import builds, chromium

ROOT = Path(__file__).parents[1]
EXPERIMENT = ROOT / "experiments/congestion/incast.yaml"
SETTINGS = ["fabric.topology={clos: {leaves: 4, spines: 2, hosts_per_leaf: 4}}", "sweep={}"]
PICTURE = ROOT / "docs/network-under-incast.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium(builds()[0]) as browser:
        done = run(override(load(str(EXPERIMENT)), SETTINGS), Path(folder) / "run")
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light", device_scale_factor=1)
        shown = report(Path(done.folder), Path(folder) / "report.html")
        page.goto(shown.as_uri())
        page.locator("#network").screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
