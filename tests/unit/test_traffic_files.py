"""Published mixes point by point, and files of the user's own: distributions of sizes, and lists of flows."""

from __future__ import annotations

import math
import os
from pathlib import Path
from random import Random

import pytest

from testbed.base.errors import InputError
from testbed.experiment import Experiment, load
from testbed.experiment.steps import written
from testbed.experiment.steps.flows import FlowsStep
from testbed.plan.steps.plan import plan
from workloads.traffic import SOURCES, BadTable, Table, checked, published, sizes_named, table_sizes

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# Means as the generator that comes with the distributions works them out (traffic_gen/custom_rand.py, getAvg)
MEANS = {"web_search": 1_711_250, "hadoop": 120_420.75, "ali_storage": 40_869.8, "google_rpc": 2_891.62125}
FBHDP = (
    "0 0;100 1;200 2;300 5;350 15;400 20;500 30;600 40;700 50;1000 60;2000 67;7000 70;30000 72;50000 82;80000 87;"
    "120000 90;300000 95;1000000 97.5;2000000 99;10000000 100"
)
ALI = "0 0;4000 22.93;8000 69.21;16000 80.61;32000 90.47;64000 93.53;128000 96.77;256000 97.53;2000000 100"


class At(Random):
    """A draw of one share."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def random(self) -> float:
        return self.share


def by_hand(table: Table, share: float) -> float:
    """The size up to which that share of flows is, in a straight line between two entries."""
    for (low, a), (high, b) in zip(table, table[1:], strict=False):
        if share <= b:
            return low + (high - low) / (b - a) * (share - a)
    raise AssertionError


@pytest.mark.parametrize(("name", "points"), [("hadoop", FBHDP), ("ali_storage", ALI)])
def test_a_published_mix_is_the_published_one(name: str, points: str) -> None:
    told = [tuple(map(float, point.split())) for point in points.split(";")]
    assert [(nbytes, round(100 * share, 6)) for nbytes, share in published(name)] == told


@pytest.mark.parametrize("name", SOURCES)
def test_a_mix_has_its_mean_however_it_is_drawn(name: str) -> None:
    sizes, table, n = sizes_named(name, 1), published(name), 100_000
    assert sizes.mean_bytes == pytest.approx(MEANS[name], abs=0.1)
    drawn = [sizes.draw(At((k + 0.5) / n)) for k in range(n)]
    assert sum(drawn) / n == pytest.approx(MEANS[name], rel=5e-3)
    assert all(abs(drawn[k] - max(by_hand(table, (k + 0.5) / n), 1)) <= 0.5001 for k in range(0, n, 97))


def test_the_same_seed_draws_the_same_anywhere() -> None:
    rng = Random("railbed 7")
    assert [sizes_named("hadoop", 1).draw(rng) for _ in range(4)] == [505, 311, 256, 391]


def test_a_mix_may_be_cut() -> None:
    """9/10 of Hadoop's flows are 120 KB at most; cut there, the others are that."""
    cut = sizes_named("hadoop", 1, 120_000)
    assert cut.draw(At(0.95)) == cut.draw(At(0.999)) == 120_000
    below = sum(
        (b - a) * (p + q) / 2 for (p, a), (q, b) in zip(*[published("hadoop")[k:16] for k in (0, 1)], strict=False)
    )
    assert cut.mean_bytes == pytest.approx(below + 0.1 * 120_000)


def test_sizes_may_be_a_single_one_by_a_step() -> None:
    steps = table_sizes("own", ((64.0, 0.0), (64.0, 0.25), (1000.0, 0.25), (1000.0, 1.0)))
    assert {steps.draw(At(k / 100)) for k in range(26)} == {64}
    assert {steps.draw(At(k / 100)) for k in range(26, 100)} == {1000} and steps.mean_bytes == 766


# Files


def experiment(folder: Path, step: str) -> Experiment:
    file = folder / "e.yaml"
    file.write_text(f"name: t\nfabric: {{topology: {{star: {{hosts: 4}}}}}}\nworkload:\n- {step}\n")
    return load(file)


def own_sizes(folder: Path, text: str | bytes, name: str = "mine.txt") -> list[list[float]] | None:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (step,) = experiment(folder, f"load: {{sizes: {name}}}").workload
    assert step.kind == "load"
    return step.load.sizes


@pytest.mark.parametrize(
    "text",
    [
        "0 0\n1000 50\n1000000 100\n",  # as ns-3 scripts have it
        "0 0\r\n1000 50\r\n1000000 100",
        "\ufeffsize,percent\n0,0\n1KB,50%\n1MB,100%\n",
        "# mine\n\n0\t0\n1000\t0.5 # half\n1e6\t1\n",  # shares
    ],
)
def test_a_distribution_is_read_as_it_is_written(tmp_path: Path, text: str) -> None:
    assert own_sizes(tmp_path, text) == [[0, 0], [1000, 50], [1_000_000, 100]]


def test_a_loads_sizes_are_from_its_file_and_from_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("2000 0\n3000 100\n")
    told = experiment(tmp_path, "load: {sizes: mine.txt, flows: 200, load: 0.1}")
    drawn = [flow["size_bytes"] for flow in plan(told).told()["steps"][0]["flows"]]
    assert 2000 <= min(drawn) < 2050 and 2950 < max(drawn) <= 3000
    (tmp_path / "mine.txt").unlink()
    again = experiment(tmp_path, f"load: {told.resolved()['workload'][0]['load']}".replace("None", "null"))
    assert plan(again).told()["steps"] == plan(told).told()["steps"], "a run's folder needs no file but itself"


def test_nothing_of_a_file_is_cut_unasked(tmp_path: Path) -> None:
    own_sizes(tmp_path, "0 0\n1GB 100\n")
    (step,) = experiment(tmp_path, "load: {sizes: mine.txt}").workload
    assert step.kind == "load" and step.load.drawn_sizes().mean_bytes == 500_000_000
    (step,) = experiment(tmp_path, "load: {sizes: mine.txt, most: 1MB}").workload
    assert step.kind == "load" and step.load.drawn_sizes().mean_bytes == pytest.approx(999_500)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "is empty", "a line for each size"),
        ("\n# nothing\n", "is empty", "a line for each size"),
        ("0 0\n1000 50 3\n", "mine.txt:2: 3 columns", "two"),
        ("0 0\n10 fifty\n", "mine.txt:2: 'fifty' is no percentage", "0 to 100"),
        ("-5 0\n10 100\n", "mine.txt:1: ", ""),
        ("0 0\n10parsec 100\n", "mine.txt:2: ", ""),
        ("10 5\n20 100\n", "mine.txt:1: the first entry is not 0 %", "0"),
        ("0 0\n\n20 90\n", "mine.txt:3: the last entry is 90 %", "100"),
        ("0 0\n20 50\n10 100\n", "mine.txt:3: it is less than the entry before", "fall"),
        ("0 0\n20 50\n30 40\n40 100\n", "mine.txt:3: it is less than the entry before", "fall"),
        ("0 0\n0 100\n", "no flow has a byte", "bytes"),
        ("0 0\n1TB 100\n", "are too large", "most"),
        (b"\xff\xfe\x00", "cannot be read", ""),
        ("1 1\n" * 10_002, "mine.txt:10001: there are more entries than 10,000", "shorter"),
    ],
)
def test_what_is_no_distribution_is_said_with_file_and_line(
    tmp_path: Path, text: str | bytes, what: str, hint: str
) -> None:
    with pytest.raises(InputError) as wrong:
        own_sizes(tmp_path, text)
    assert what in wrong.value.what and hint in wrong.value.hint
    assert "e.yaml:4: workload[0].load.sizes" in wrong.value.where


def test_sizes_are_of_one_distribution(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either of `distribution` or of `sizes`"):
        experiment(tmp_path, "load: {sizes: [[1, 0], [2, 100]], distribution: hadoop}")
    with pytest.raises(InputError, match="the last entry is 90 %"):
        experiment(tmp_path, "load: {sizes: [[1, 0], [2, 90]]}")


def own_flows(folder: Path, text: str | bytes, name: str = "flows.csv") -> Experiment:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return experiment(folder, f"flows: {name}")


@pytest.mark.parametrize(
    "text",
    [
        "start,from,to,size,class\n5us,0,1,64KiB,3\n1us,1,2,1000,\n",
        "\ufeffstart,from,to,size,class\r\n0.000005,0,1,65536,3\r\n1us,1,2,1KB\r\n",
        "5us 0 1 64KiB 3\n\n# later in the file, earlier in time\n1us 1 2 1000\n",
        "to,from,size,start,class\n1,0,64KiB,5us,3\n2,1,1000B,1us,\n",
    ],
)
def test_flows_are_read_as_they_are_written(tmp_path: Path, text: str) -> None:
    (step,) = plan(own_flows(tmp_path, text)).told()["steps"]
    first, second = step["flows"]
    assert first == {
        "from": 0,
        "to": 1,
        "size_bytes": 65536,
        "start_ns": 5000.0,
        "traffic_class": 3,
        "dscp": first["dscp"],
    }
    assert second == {"from": 1, "to": 2, "size_bytes": 1000, "start_ns": 1000.0}


def test_flows_of_a_file_may_be_sent_by_something_else(tmp_path: Path) -> None:
    text = (
        "from,to,size,transport,class\n0,1,1KB,swift,3\n1,2,1KB,,3\n2,3,1KB\n"
        '0,3,1KB,"{cc: dctcp, recovery: selective_repeat, sack: {every: 8}}",\n'
    )
    (tmp_path / "own.c").write_text((EXPERIMENTS / "own" / "reno-ecn.c").read_text())
    (step,) = own_flows(tmp_path, text + "1,0,1KB,{cc: {file: own.c}}\n").workload
    assert isinstance(step, FlowsStep)
    first, second, third, fourth, fifth = (flow.transport for flow in step.flows)
    assert first and first.cc.name == "swift" and first.model_fields_set == {"cc"}
    assert second is third is None and [flow.traffic_class for flow in step.flows] == [3, 3, None, None, None]
    assert fourth and fourth.cc.name == "dctcp" and fourth.sack and fourth.sack.every == 8
    assert fifth and fifth.cc.short == "own.c"


def test_a_class_is_marked_as_switches_know_it(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text("0,0,1,1KB,5\n")
    text = "name: t\nfabric: {topology: {star: {hosts: 4}}, switch: {dscp: {40: 5, 42: 5, 26: 3, 48: 6}}}\n"
    (tmp_path / "e.yaml").write_text(text + "workload:\n- flows: flows.csv\n")
    (step,) = plan(load(tmp_path / "e.yaml")).told()["steps"]
    assert (step["flows"][0]["traffic_class"], step["flows"][0]["dscp"]) == (5, 40)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "is empty: there are no flows", "start,from,to,size,class"),
        ("start,from,to,size\n", "is empty: there are no flows", "start,from,to,size,class"),
        ("start,from,size\n0,1,1\n", "flows.csv:1: there is no column to", "start, from, to, size, class"),
        ("start,from,to,bytes\n0,0,1,1\n", "flows.csv:1: unknown or repeated column 'bytes'", "size"),
        ("from,to,size\n0,1,1KB\n1,9,1KB\n", "flows.csv:3: column to: there is no rank 9", "ranks 0 to 3"),
        ("from,to,size\n0,1,1KB\n2,2,1KB\n", "flows.csv:3: column to: a flow from rank 2 to itself", "two different"),
        ("from,to,size\n0,x,1KB\n", "flows.csv:2: column to: 'x' is neither a rank nor", "nic:RANK.complex"),
        ("from,to,size\n0,1.5,1KB\n", "flows.csv:2: column to: '1.5' is no rank", "a number"),
        ("from,to,size\n0,,1KB\n", "flows.csv:2: column to: nothing stands there", "a number"),
        ("from,to,size\n0,1,0\n", "flows.csv:2: column size: ", ""),
        ("from,to,size\n0,1,1.5\n", "flows.csv:2: column size: '1.5' is no whole number of bytes", "64KiB"),
        ("from,to,size\n0,1,17GiB\n", "flows.csv:2: column size: ", "16GiB"),
        ("from,to,size\n0,1,10furlong\n", "flows.csv:2: column size: ", ""),
        ("soon,0,1,1KB\n", "unknown or repeated column 'soon'", "start"),
        ("0,0,1,1KB\n-1us,0,1,1KB\n", "flows.csv:2: column start: ", ""),
        ("0,0,1,1KB\n1e9,0,1,1KB\n", "flows.csv:2: column start: '1e9' is out of range", "10000s"),
        ("0,0,1,1KB,8\n", "flows.csv:1: column class: '8' is no traffic class", "0 to 7"),
        ("0,0,1,1KB,7\n", "flows.csv:1: column class: no DSCP is in class 7", "fabric.switch.dscp"),
        ("0,0,1,1KB,,quic\n", "flows.csv:1: column transport: unknown congestion control 'quic'", "dctcp"),
        ('0,0,1,1KB,,"{cc: dctcp"\n', "flows.csv:1: column transport: '{cc: dctcp' cannot be read", "in quotes"),
        ("0,0,1,1KB,,{qps: 4}\n", "flows.csv:1: column transport: unknown key 'qps'", "recovery"),
        ("0,0,1\n", "flows.csv:1: 3 columns", "start,from,to,size,class"),
        (b"\xff\xfe\x00", "cannot be read", ""),
        ("0 0 1 1\n" * 100_001, "flows.csv:100001: there are more entries than 100,000", "shorter"),
    ],
)
def test_what_is_no_flow_is_said_with_file_line_and_column(
    tmp_path: Path, text: str | bytes, what: str, hint: str
) -> None:
    with pytest.raises(InputError) as wrong:
        own_flows(tmp_path, text)
    assert what in wrong.value.what and hint in wrong.value.hint
    assert "e.yaml:4: workload[0].flows" in wrong.value.where


def test_every_mistake_of_a_file_is_told_up_to_some(tmp_path: Path) -> None:
    with pytest.raises(InputError) as wrong:
        own_flows(tmp_path, "from,to,size\n" + "0,9,x\n" * 50)
    assert len(wrong.value.also) == written.MOST_TOLD - 1


def test_what_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, what in (
        ("pipe.csv", "no ordinary file"),
        ("/dev/zero", "no ordinary file"),
        ("none.csv", "cannot be read"),
    ):
        for step in (f"flows: {name}", f"load: {{sizes: {name}}}"):
            with pytest.raises(InputError, match=what):
                experiment(tmp_path, step)
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(written.MOST_BYTES + 1)
    with pytest.raises(InputError, match="larger than 16 MiB"):
        experiment(tmp_path, "flows: huge.csv")


@pytest.mark.parametrize(
    "table",
    [
        [[math.nan, 0], [1000, 100]],
        [[0, 0], [math.nan, 50], [1000, 100]],
        [[0, 0], [10, math.nan], [1000, 100]],
        [[-math.inf, 0], [1000, 100]],
        [[-1e30, 0], [1000, 100]],
        [[0, 0], [math.inf, 100]],
    ],
)
def test_what_is_no_number_or_negative_is_no_distribution(table: list[list[float]]) -> None:
    with pytest.raises(BadTable, match="that is none"):
        checked(table)


@pytest.mark.parametrize("least", [[[1000.0, 0.0]], [[1000.0, 0.0], [1000.0, 50.0]], [[500.0, 0.0]]])
def test_a_cut_below_the_least_size_leaves_flows_of_that_size(least: list[list[float]]) -> None:
    sizes = table_sizes("own", checked([*least, [2000.0, 100.0]]), 500)
    assert sizes.mean_bytes == 500
    assert {sizes.draw(At(share)) for share in (0.0, 0.3, 0.9)} == {500}
