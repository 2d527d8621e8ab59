"""What `testbed predict` shows of a prediction."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from testbed.experiment import loads
from testbed.predict import predict
from testbed.predict.table import of_prediction

SMALLER = """
name: smaller
fabric: {topology: {star: {hosts: 4}}}
workload:
- train:
    model: {layers: 8, hidden: 256, heads: 4, seq: 128, vocab: 1024}
    gpu: {flops: 100T}
    batch: {micro: 1, count: 2}
    parallel: {data: 4}
    scale: {layers: [2, 4]}
"""


def test_every_step_and_the_whole_model_have_a_heading_of_their_own() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(of_prediction(predict(loads(SMALLER)), "smaller"))
    lines = console.export_text().splitlines()
    headings = [line for line in lines if line.startswith("# train")]
    assert [heading.split(", ")[-2] for heading in headings] == ["2 layers", "4 layers", "the whole of 8 layers"]
    for heading in headings:  # a line of units, and one figure
        first = lines.index(heading) + 3
        assert lines[first].split()[0] == "-" and lines[first + 1] == "#"


def test_what_the_model_of_credit_does_not_follow_is_said() -> None:
    """PCIe slower than the cable, and a window of less than goes without credit; not with the defaults."""
    text = "name: x\nfabric: {topology: {star: {hosts: 4}}%s}\ntransport: {recovery: selective_repeat, cc: %s}\n"
    text += "workload: [{collective: all_to_all, sizes: [64KB]}]\n"
    slow = ", nic: {pcie: {rate: 256Gbps}}"
    for nic, cc, says in (("", "eqds", ""), (slow, "eqds", "PCIe"), ("", "{homa: {window: 40KB}}", "`window`")):
        said = [one for one in predict(loads(text % (nic, cc))).left_out if "credit" in one]
        assert (len(said) == 1 and says in said[0]) if says else not said
