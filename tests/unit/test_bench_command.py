"""`testbed bench`: sizes and fabrics from its options, nccl-tests' table, and what it says of bad input."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.figures.summary import labels
from testbed.base.errors import InputError
from testbed.bench.experiment import PRESETS, Options, everything, experiment, types_left_out
from testbed.bench.sizes import ladder, parse
from testbed.bench.table import BenchRow, comparison, footer, number
from tests.parts.command_line import Cli
from tests.parts.command_line import testbed as testbed
from tests.parts.fake_lab import result_line
from tests.parts.small_run import DONE
from topologies import build
from workloads.base.vocabulary import DTYPES
from workloads.registry import algorithms

LINE = "bench all_reduce -b 1K -e 4K -f 4 -n 2 -g 3 --topology ring --out here"
TABLE = """\
# all_reduce: 3 ranks, minBytes 1024 maxBytes 4096, warmup iters: 0 iters: 2 validation: 1
# fabric: ring (nodes 3), congestion control none, virtual clock, seed 1
# in-place is what hosts do, and is measured; what reduces in switches or NICs writes beside its input
#
# algorithm: ring
#                                                             out-of-place                         in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256   float32     sum      -1      N/A     N/A     N/A     N/A    2.051    0.50    0.67       0
        4096          1024   float32     sum      -1      N/A     N/A     N/A     N/A   104.00    0.04    0.05       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.359102 GB/s
#
# Fidelity             : exact; frames dropped: none
# Run folder           : {folder}
"""


def worker(rank: int) -> str:
    """Rank 2 says everything last, and everything of the small size first."""
    lines = [
        result_line(rank, 1024, 0, 0, 2000 + rank),
        result_line(rank, 1024, 1, 3000, 5100 - rank),
        result_line(rank, 4096, 0, 6000, 110_000),
        result_line(rank, 4096, 1, 200_000, 304_000),
    ]
    return "".join(lines) + DONE


def test_the_table_is_that_of_nccl_tests(testbed: Cli) -> None:
    done = testbed(*LINE.split(), script=worker)
    assert done.out == TABLE.format(folder=Path("here").absolute())
    assert done.code == 0


def test_json_is_the_runs_object_with_the_rows_of_the_table(testbed: Cli) -> None:
    done = testbed(*LINE.split(), "--json", script=worker)
    assert (done.code, done.err) == (0, "")
    assert [(r["size"], r["count"], r["time_us"], r["wrong"]) for r in done.data["rows"]] == [
        (1024, 256, 2.051, 0),
        (4096, 1024, 104.0, 0),
    ]
    assert len(done.data["results"]) == 4 and done.data["fidelity"]["verdict"] == "exact"


def test_host_adds_columns_behind_the_table(testbed: Cli) -> None:
    def script(rank: int) -> str:
        more = f'"wrong": 0, "host_ns": {700 + rank * 101}, "sent_bytes": {1000 * rank}'
        return worker(rank).replace('"wrong": 0', more)

    done = testbed(*LINE.split(), "--host", script=script)
    lines = done.out.splitlines()
    assert lines[6].endswith("  #wrong      host          sent")
    assert lines[7].endswith("      (us)           (B)")
    assert lines[8].endswith("  2.051    0.50    0.67       0     0.801          1000")  # means over the ranks


def test_a_run_that_fails_shows_the_rows_until_then(testbed: Cli) -> None:
    def script(rank: int) -> str:
        return result_line(rank, 1024) + ("raise SystemExit(3)" if rank == 1 else "time.sleep(60)\n")

    done = testbed(*LINE.replace("-n 2", "-n 1").split(), script=script)
    assert done.code == 1
    assert re.search(r"^ +1024 +256 +float32", done.out, re.M) and "Avg bus bandwidth" in done.out
    assert "rank 1" in done.err and "here.failed" in done.err


def test_a_run_that_fails_prints_its_error_as_json(testbed: Cli) -> None:
    done = testbed(*LINE.split(), "--json", script=lambda rank: "raise SystemExit(3)")
    assert set(done.data) == {"error", "run"} and done.code == 1


def test_wrong_elements_are_counted_and_fail(testbed: Cli) -> None:
    def script(rank: int) -> str:
        return result_line(rank).replace('"wrong": 0', f'"wrong": {rank}') + DONE

    done = testbed(*LINE.replace("-e 4K -f 4 -n 2", "-e 1K").split(), script=script)
    assert done.code == 1
    assert "Out of bounds values : 3 FAILED" in done.out


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("all_reduce --algorithm rnig", r"unknown algorithm .rnig.[\s\S]*--algorithm[\s\S]*did you mean"),
        ("all_reduce --algorithm ring[chunk=1KiB],ring[chunk=1KiB]", r"stands twice[\s\S]*--algorithm"),
        (
            "all_reduce --algorithm ring[chunk",
            r"'ring\[chunk' is no algorithm[\s\S]*--algorithm[\s\S]*ring\[chunk=64KiB\]",
        ),
        ("all_reduce --algorithm ring,ring", r"stands twice[\s\S]*--algorithm"),
        ("all_reduc", r"unknown collective 'all_reduc'[\s\S]*COLLECTIVE[\s\S]*did you mean 'all_reduce'"),
        ("all_reduce -b 2M -e 1M -f 2", r"2MiB, is above the largest, 1MiB[\s\S]*-b, -e"),
        ("all_reduce -b 1K -e 1M -f 1", r"factor of 1 no size grows[\s\S]*-f"),
        ("all_reduce -b 1K -e 1M -f 0", r"factor of 0 no size grows[\s\S]*-f"),
        ("all_reduce -f 2 -i 1M", r"not both[\s\S]*-f, -i"),
        ("all_reduce -b 1K -e 1M -i 0", r"less than one element[\s\S]*-i"),
        ("all_reduce -b 0 -e 1M -f 2", r"less than one element[\s\S]*-b"),
        ("all_reduce -b 4 -e 1G -i 4", r"more than 1000 sizes"),
        ("all_reduce -b 1X", r"'X' is not a unit of size[\s\S]*-b[\s\S]*1K"),
        ("all_reduce -g 4 --topology small.yaml", r"small.yaml has 3 ranks, not 4[\s\S]*-g"),
        ("all_reduce -g 7 --topology torus", r"7 ranks make no torus[\s\S]*-g[\s\S]*4, 6, 8, 9"),
        ("all_reduce -g 1", r"nobody to talk to[\s\S]*-g"),
        ("all_reduce -g 300", r"300 is out of range"),
        ("all_reduce --topology tours", r"unknown topology 'tours'[\s\S]*--topology[\s\S]*did you mean 'torus'"),
        ("all_reduce --topology '{tourus: {dims: [2]}}'", r"unknown topology 'tourus'[\s\S]*--topology: fabric"),
        ("all_reduce --topology {torus:", r"--topology"),
        ("all_reduce -c 0", r"0 is out of bounds; must be at least 1"),
        ("all_reduce --topology none.yaml", r"no such file[\s\S]*none.yaml"),
        ("all_reduce -d float8", r"unknown type 'float8'[\s\S]*-d[\s\S]*float32"),
        ("all_reduce -o mean", r"unknown reduction 'mean'[\s\S]*-o[\s\S]*avg"),
        ("all_gather -o sum", r"all_gather combines nothing[\s\S]*-o"),
        ("all_reduce -r 0", r"all_reduce has no root[\s\S]*-r"),
        ("all_reduce --cc dcqn", r"unknown congestion control 'dcqn'[\s\S]*--cc[\s\S]*dcqcn"),
        ("all_reduce --set workload.0.size=1", r"there is no 'size' here[\s\S]*--set"),
        ("ping_pong -g 3", r"ping_pong takes 2 ranks, not 3[\s\S]*-g 2"),
        ("all_reduce --algorithm ring[chnk=1]", r"unknown key 'chnk'[\s\S]*--algorithm: chnk[\s\S]*'chunk'"),
        ("all_reduce --algorithm all,rnig", r"unknown algorithm .rnig.[\s\S]*did you mean"),
        ("all_reduce --set workload.*.size=1", r"there is no 'size' here[\s\S]*--set"),
        ("all_reduce --set fabric.*.rate=1Gbps", r"every entry of a list[\s\S]*--set"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_that_names_the_option(testbed: Cli, line: str, what: str) -> None:
    done = testbed("bench", *shlex.split(line))
    assert done.code == 2 and done.out == ""
    assert re.search(what, done.err), done.err
    assert done.err.lower().count("error:") == 1 and "also:" not in done.err


def test_a_topology_file_may_be_nothing_but_a_fabric(testbed: Cli) -> None:
    Path("two.yaml").write_text("fabric:\n  topology: {star: {hosts: 5}}\n  cable: {rate: 100Gbps}\n")
    made = experiment(Options("all_reduce", ["ring"], "8", "8", ranks=3, topology="two.yaml", cc="dcqcn", seed=7))
    assert (made.name, made.seed, made.transport.cc.name) == ("bench-all_reduce", 7, "dcqcn")
    assert made.fabric.cable.rate == 100e9
    assert made.workload[0].ranks == [0, 1, 2]  # type: ignore[union-attr]
    Path("two.yaml").write_text("fabric:\n  topology: {star: {hosts: 5}}\n  cabel: {}\n")
    with pytest.raises(InputError) as told:
        experiment(Options("all_reduce", topology="two.yaml"))
    assert told.value.where == "two.yaml:3: fabric.cabel"


def test_every_type_and_reduction_is_a_step_of_the_one_experiment() -> None:
    made = experiment(Options("all_reduce", ["ring"], "64K", "64K", dtype="all", op="all", ranks=2))
    steps: list[Any] = list(made.workload)
    assert len({(s.dtype, s.op) for s in steps}) == len(steps) == len(DTYPES) * 5 + 4 * 3  # bits of integers
    assert {s.op for s in experiment(Options("all_gather", dtype="half", end="1K")).workload} == {None}  # type: ignore[union-attr]


def test_a_topology_may_be_written_on_the_command_line() -> None:
    made = experiment(Options("all_reduce", topology="{torus: {dims: [2, 2, 2]}}", begin="1K", end="1K"))
    assert (made.fabric.topology.kind, len(made.build_fabric().nics), made.workload[0].ranks) == ("torus", 8, None)  # type: ignore[union-attr]


def test_checked_iterations_are_warm_up_where_the_timed_ones_do_not_do() -> None:
    warmups = [
        experiment(Options("all_reduce", begin="1K", end="1K", check=c, iterations=n, warmup=w)).workload[0].warmup  # type: ignore[union-attr]
        for c, n, w in ((1, 1, 0), (5, 3, 0), (5, 3, 4), (5, 20, 1))
    ]
    assert warmups == [0, 2, 4, 1]


def test_settings_of_the_fabric_hold_before_the_steps_are_made() -> None:
    settings = ["fabric.nic.kind=off_path", "workload.0.density=0.25", "fabric.cable.rate=100Gbps"]
    made = experiment(Options("all_reduce", ["omniccl"], end="1M", ranks=4, settings=settings))
    assert (made.fabric.nic.kind, made.fabric.cable.rate) == ("off_path", 10**11)
    assert made.workload[0].density == 0.25  # type: ignore[union-attr]


def test_an_algorithm_may_have_keys_of_its_own() -> None:
    made = experiment(Options("all_reduce", ["ring", "ring[chunk=64KiB]", "omnireduce[density=0.5,slots=8]"], end="1M"))
    steps: list[Any] = list(made.workload)
    assert [(s.algorithm, s.chunk, s.density, s.slots) for s in steps] == [
        ("ring", None, None, None), ("ring", 65536, None, None), ("omnireduce", None, 0.5, 8),
    ]  # fmt: skip
    assert labels(made.resolved()["workload"]) == ["ring", "ring[chunk=64KiB]", "omnireduce"]


def test_a_table_names_what_was_asked_of_an_algorithm() -> None:
    """Also where it stands once, and whether it was said of it or with `--set`."""
    names = [labels(made.resolved()["workload"], made.written()["workload"]) for made in (
        experiment(Options("all_reduce", ["ring[chunk=64KiB]", "auto[offloads=true]"], end="1M")),
        experiment(Options("gather_v", ["linear[parts=[[4,1,1,0]]]", "binomial_tree"], end="1M", ranks=4)),
        experiment(Options("gather_v", ["linear"], end="1M", ranks=4, settings=["workload.*.parts=[[4,1,1,0]]"])),
    )]  # fmt: skip
    assert names == [
        ["ring[chunk=64KiB]", "auto[offloads=true]"],
        ["linear[parts=[[4, 1, 1, 0]]]", "binomial_tree"],
        ["linear[parts=[[4, 1, 1, 0]]]"],
    ]


def test_a_setting_of_every_step_reaches_every_algorithm() -> None:
    made = experiment(Options("gather_v", ["linear", "binomial_tree"], end="1M", ranks=2, settings=[
        "workload.*.parts=[[3,1]]", "workload[*].iterations=2",
    ]))  # fmt: skip
    steps: list[Any] = list(made.workload)
    assert [(s.parts, s.iterations) for s in steps] == [([[3, 1]], 2)] * 2


def test_types_that_some_algorithm_does_not_have_are_told() -> None:
    left_out = types_left_out(Options("all_reduce", ["ring", "in_network"], dtype="all"))
    ((what, why),) = left_out.items()
    assert what.startswith("in_network in ") and "float64" in what and "it has float32" in why
    assert types_left_out(Options("all_reduce", ["ring", "in_network"])) == {}


def test_all_may_stand_beside_others() -> None:
    options, _ = everything(Options("send_recv", ["all", "auto", "pair"], end="1K", ranks=2))
    assert options.algorithms == ["pair", "shift", "auto"]


def test_all_algorithms_are_those_that_the_fabric_the_ranks_and_the_type_allow() -> None:
    def of(**more: Any) -> tuple[list[str], dict[str, str]]:
        options, left_out = everything(Options(begin="1M", end="1M", **more))
        steps: list[Any] = list(experiment(options).workload)
        return [step.algorithm for step in steps], left_out

    on_star, without = of(collective="all_reduce")
    assert {"ring", "halving_doubling", "in_network", "direct_reduce"} <= set(on_star)
    grids = {"torus", "bucket", "swing", "swing_latency"}
    assert set(without) == {*grids, "rails", "collnet_direct", "collnet_nvls", "nvls", "multi_ring", "omniccl"}
    assert "coordinates" in without["torus"] and "ports" in without["multi_ring"]
    on_torus, without = of(collective="all_reduce", topology="torus", dtype="float64")
    assert "torus" in on_torus and "float64" in without["in_network"]
    assert set(on_torus) | set(without) == {entry.name for entry in algorithms("all_reduce")}
    assert of(collective="send_recv", ranks=4)[0] == ["shift"]


def test_left_out_the_algorithm_is_the_first_that_takes_as_many_ranks() -> None:
    """As nccl-tests' sendrecv: everybody to the next, not a pair among eight."""
    chosen = {ranks: experiment(Options("send_recv", end="1K", ranks=ranks)).workload[0] for ranks in (None, 2, 5)}
    assert [step.algorithm for step in chosen.values()] == ["shift", "pair", "shift"]  # type: ignore[union-attr]
    assert experiment(Options("ping_pong", end="1K")).workload[0].algorithm == "write"  # type: ignore[union-attr]


def test_a_root_comes_first_in_its_group() -> None:
    made = experiment(Options("broadcast", ["multicast"], end="1K", ranks=4, root="2"))
    assert made.workload[0].ranks == [2, 0, 1, 3]  # type: ignore[union-attr]
    each = experiment(Options("broadcast", ["multicast"], end="1K", ranks=3, root="all"))
    assert [s.ranks for s in each.workload] == [None, [1, 0, 2], [2, 0, 1]]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="'4' is no root"):
        experiment(Options("broadcast", ["multicast"], end="1K", ranks=4, root="4"))


def test_large_vectors_get_the_memory_that_they_need() -> None:
    assert experiment(Options("all_reduce", (), "1K", "1K")).workers.memory == 1 << 30
    assert experiment(Options("all_reduce", (), "1G", "1G")).workers.memory > 3 << 30


@given(st.sampled_from(sorted(PRESETS)), st.integers(2, 250))
def test_a_preset_has_the_ranks_that_were_asked_for(name: str, ranks: int) -> None:
    params = PRESETS[name].of_ranks(ranks)
    if params is None:
        assert name == "torus" and all(ranks % d for d in range(2, int(ranks**0.5) + 1))
        return
    there = len(build(name, params).nics)
    assert there == ranks or (name == "clos" and there == ranks + 1)


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 30), st.integers(2, 64), st.sampled_from([1, 2, 4, 8]))
def test_a_ladder_grows_by_its_factor_within_its_ends(begin: int, end: int, factor: int, width: int) -> None:
    if begin < width or begin > end:
        with pytest.raises(InputError):
            ladder(begin, end, width, factor=factor)
        return
    sizes = ladder(begin, end, width, factor=factor)
    assert sizes == sorted(set(sizes)) and all(s % width == 0 and s > 0 for s in sizes)
    assert sizes[0] == begin - begin % width and sizes[-1] <= end < begin * factor ** len(sizes)


def test_sizes_are_written_in_either_way() -> None:
    written = ["1K", "1k", "1KiB", "1024", "8M", "1.5M", "1G", "1KB", "16MiB"]
    assert [parse(text, "-b") for text in written] == [
        1024, 1024, 1024, 1024, 8 << 20, 3 << 19, 1 << 30, 1000, 16 << 20,
    ]  # fmt: skip
    assert ladder(1 << 20, 3 << 20, 4) == [1 << 20, 2 << 20, 3 << 20]  # nccl-tests' default: by 1M


def test_numbers_have_the_decimals_that_fit() -> None:
    assert [number(v, 7) for v in (0.0, 9.9996, 45.1, 12345.6, 123456.7, 1234567.0)] == [
        "0.000", "10.000", "45.10", "12345.6", "123457", "1234567",
    ]  # fmt: skip
    assert [number(v, 6) for v in (0.5, 123.456, 1234.5)] == ["0.50", "123.46", "1234.5"]


def test_what_was_not_offloaded_is_said_below_the_table() -> None:
    rows = [
        BenchRow(0, "in_network", 4, size, size // 4, "float32", "sum", -1, 1.0, 1.0, 1.0, 0, fallback=why)
        for size, why in ((1024, None), (2048, "no slots left"), (4096, "no slots left"))
    ]
    assert footer(rows)[0] == "# 2 of 3 sizes by the ranks themselves: no slots left"
    assert len(footer(rows[:1])) == len(footer(rows)) - 1
    assert footer(rows[1:2])[0].startswith("# 1 of 1 size by")


def test_several_algorithms_are_compared_with_the_first() -> None:
    rows = [
        BenchRow(k, name, 4, size, size // 4, "float32", "sum", -1, time, 1.0, 1.0, 0)
        for k, name, times in ((0, "ring", (10.0, 40.0)), (1, "tree", (5.0, 80.0)))
        for size, time in zip((1024, 4096), times, strict=True)
    ]
    assert comparison(rows)[1:] == [
        "# time (us), float32, sum; in brackets: how many times as fast as ring",
        "#       size                ring                tree",
        "#       1024      10.00 ( 1.00x)      5.000 ( 2.00x)",
        "#       4096      40.00 ( 1.00x)      80.00 ( 0.50x)",
    ]
    assert comparison(rows[:2]) == []
