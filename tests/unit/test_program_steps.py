"""The step `program`: who runs what, what is wrong with one, and what is taken out of what programs print."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.logs.printed import Figure, figures
from testbed.plan.steps.plan import plan
from testbed.plan.steps.planned import PlannedPrograms

TEXT = "name: p\nfabric: {topology: {star: {hosts: 4}}}\nworkload:\n  - {%s}\n"


def planned(keys: str) -> PlannedPrograms:
    (step,) = plan(loads(TEXT % keys)).steps
    assert isinstance(step, PlannedPrograms)
    return step


def told(keys: str) -> list[tuple[int, str, str]]:
    return [(one.rank, one.role, " ".join(one.argv)) for one in planned(keys).programs]


def test_clients_get_their_servers_address_and_sizes_are_bytes() -> None:
    assert told("program: ib_write_bw -s 64KiB -n 10, servers: [0, 1], clients: [2, 3]") == [
        (0, "server", "ib_write_bw -s 65536 -n 10"),
        (1, "server", "ib_write_bw -s 65536 -n 10"),
        (2, "client", "ib_write_bw -s 65536 -n 10 10.0.0.1"),
        (3, "client", "ib_write_bw -s 65536 -n 10 10.0.0.2"),
    ]


def test_with_a_port_each_client_has_a_server_of_its_own() -> None:
    assert told("program: [ib_send_bw, -p, '{port}'], servers: [3], clients: [0, 1, 3]") == [
        *((3, "server", f"ib_send_bw -p {18515 + k}") for k in range(3)),
        *((rank, "client", f"ib_send_bw -p {18515 + k} 10.0.0.4") for k, rank in enumerate((0, 1, 3))),
    ]


def test_servers_may_run_something_else_and_words_stay_where_they_are() -> None:
    keys = "program: [rping, -c, -a, '{server}', -C, 3], server: rping -s -C 3, servers: [1], clients: [0]"
    assert told(keys) == [(1, "server", "rping -s -C 3"), (0, "client", "rping -c -a 10.0.0.2 -C 3")]


def test_alone_they_have_torchruns_environment_and_keep_units_of_their_own() -> None:
    step = planned("program: [all_reduce_perf, -b, 8, -e, 128M, '{rank}', 1.5], ranks: [2, 1], env: {A: b}")
    assert told("program: [a, 128M, '{rank}'], ranks: [2]") == [(2, "rank", "a 128M 2")]
    first, second = step.programs
    assert first.argv == ["all_reduce_perf", "-b", "8", "-e", "128M", "2", "1.5"]
    assert {key: first.env[key] for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "A")} == {
        "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.3", "A": "b"
    }  # fmt: skip
    assert second.env["RANK"] == "1" and len(told("program: [a]")) == 4


def test_with_the_virtual_clock_the_time_library_is_preloaded() -> None:
    env = planned("program: [a]").programs[0].env
    (real,) = plan(loads((TEXT % "program: [a]") + "clock: real\n")).steps
    assert "LD_PRELOAD" in env and isinstance(real, PlannedPrograms)
    assert "LD_PRELOAD" not in real.programs[0].env and "LD_LIBRARY_PATH" in real.programs[0].env


def test_a_worker_is_told_what_its_own_programs_run() -> None:
    step = planned("program: [a], servers: [0], clients: [1]")
    own = step.told([1])["processes"]
    assert [one.get("argv") for one in own] == [None, ["a", "10.0.0.1"]]
    assert [one["role"] for one in own] == ["server", "client"]


@pytest.mark.parametrize(
    "keys, what",
    [
        ("program: [a], servers: [0]", "there are servers, and no clients"),
        ("program: [a], clients: [0]", "there are clients, and no servers"),
        ("program: [a], ranks: [0], servers: [1], clients: [2]", "by themselves or as servers"),
        ("program: [a], ranks: [4]", "there is no rank 4"),
        ("program: [a], ranks: [1, 1]", "rank 1 stands twice"),
        ("program: [a], server: [b]", "nobody runs it"),
        ("program: [ib_read_lat], servers: [0], clients: [1, 2]", "serves one client"),
        ("program: [a], transport: {cc: dcqcn}", "by what their NICs do"),
        ("program: [], ranks: [0]", "program"),
        ("program: 'a \"b', ranks: [0]", "cannot be taken apart"),
    ],
)
def test_what_is_wrong_is_said(keys: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        loads(TEXT % keys)


PERFTEST_BW = """
                    RDMA_Read BW Test
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             46572.28            46570.00\t\t   0.745134
"""
PERFTEST_GBITS = """
                    RDMA_Write Bidirectional BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          1000             0.5            0.4\t\t   25.0
 4          1000             1.0            0.8\t\t   25.0
"""
PERFTEST_LAT = """
                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          3.10           3.20         3.11                3.12             0.00
"""
OSU = """
# OSU MPI Latency Test v7.4
# Size          Latency (us)
1                       2.50
# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)
8                      20.00
"""
NCCL = """
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    100.0   10.49   18.35      0    100.0   10.49   18.35      0
"""


@pytest.mark.parametrize(
    "text, expected",
    [
        (PERFTEST_BW, [(65536, 65536e9 / (46570 * 2**20), 46570.0 * 2**20, 745134.0)]),
        (PERFTEST_GBITS, [(2, 2e9 / 0.05e9, 0.05e9, 25e6), (4, 4e9 / 0.1e9, 0.1e9, 25e6)]),
        (PERFTEST_LAT, [(2, 3110.0, None, None)]),
        (OSU, [(1, 2500.0, None, None), (8, 20000.0, None, None)]),
        ("nothing\n1 2 3\n", []),
    ],
)
def test_tables_are_found(text: str, expected: list[Any]) -> None:
    found = [(one.size_bytes, one.time_ns, one.rate_Bps, one.messages_per_s) for one in figures(text)]
    assert found == [pytest.approx(one) if None not in one else one for one in expected]


def test_tables_of_nccl_tests_are_read_too() -> None:
    (one,) = figures(NCCL.replace("# nThread", "# Collective test starting: all_reduce_perf\n# nThread"))
    assert (one.size_bytes, one.time_ns, one.rate_Bps) == (1048576, 100_000.0, pytest.approx(1048576e4))


def test_on_a_slower_clock_times_are_shorter_and_rates_higher() -> None:
    assert Figure(8, 2000.0, 4.0, 2.0).dilated(1000) == Figure(8, 2.0, 4000.0, 2000.0, None)
