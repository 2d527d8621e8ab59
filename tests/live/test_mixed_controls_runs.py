"""Two controls on one fabric, from the file to the table: who sends by what, and who gets what."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from results.store.load import load as load_run
from testbed.experiment import loads
from testbed.run.run import run
from testbed.tables.results import of_run

FILE = """
name: mixed
fabric: {topology: {star: {hosts: 5}}, switch: {ecn: {kmin: 50KB, kmax: 200KB, pmax: 0.2}}}
control: {fast_path: %s}
transport: {cc: dcqcn, nics: {2: {cc: dctcp}}}
workload:
  - flows:
      - {from: 1, to: 0, size: 16MB}
      - {from: 2, to: 0, size: 16MB}
      - {from: 3, to: 0, size: 16MB, transport: {cc: dctcp}}
      - {from: 4, to: 0, size: 16MB}
  - {collective: all_reduce, sizes: [256KiB], groups: [[0, 1], [2, 3]], transports: [{cc: swift}, {cc: hpcc}]}
"""


def test_each_goes_by_its_own_and_the_table_says_who_gets_what(tmp_path: Path) -> None:
    hashes = []
    for way in ("{sample: 64}", "off"):
        result = run(loads(FILE % way), str(tmp_path / str(len(hashes))))
        hashes.append(result.metrics_sha256)
        assert not any(row["wrong"] for row in result.results)
    assert hashes[0] == hashes[1]
    assert [row.get("sends_by") for row in result.results] == ["dcqcn", "dctcp", "dctcp", "dcqcn", "swift", "hpcc"]
    one, two, *groups = result.shares
    assert (one["sends_by"], two["sends_by"], one["count"]) == ("dcqcn", "dctcp", 2)
    assert one["share"] + two["share"] == 1 and two["share"] > 0.6 > one["even"] == 0.5
    assert [its["sends_by"] for its in groups] == ["swift", "hpcc"]
    # all flows together have the cable: 400 Gb/s, less headers
    assert 0.9 * 50e9 < sum(row["together_Bps"] for row in result.results[:4]) < 50e9
    named = {
        (q["rank"], q["cc"]) for q in json.loads((result.folder / "counters.json").read_text())["qps"] if "cc" in q
    }
    assert named >= {(2, "dctcp"), (3, "dctcp"), (0, "swift"), (1, "swift"), (2, "hpcc"), (3, "hpcc")}
    assert "dcqcn" not in {control for _, control in named}  # that is what NICs have
    screen = StringIO()
    Console(file=screen, width=200).print(of_run(load_run(result.folder)))
    table = screen.getvalue()
    assert "who gets what while all are there" in table and "by their mean rates" in table
