"""Logs of clusters: what is read of each form, what is left out and why, and what hostile ones do: nothing."""

# ruff: noqa: E501 -- logs are as wide as they are

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError, UserError
from testbed.logs import read as module
from testbed.logs import row as rows_module
from testbed.logs.nccl_json import step
from testbed.logs.read import read
from testbed.logs.row import Log
from testbed.logs.topology import read as topology
from tests.parts.cluster_logs import half, row, table
from workloads.library.choice import choose
from workloads.library.servers import Servers
from workloads.library.settings import Settings

TIMES = {1024: 22.35, 1 << 20: 61.5, 1 << 30: 40158.0}


def of(tmp_path: Path, text: str | bytes, name: str = "x.log", collective: str | None = None) -> Log:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read([str(path)], collective)[0]


def seen(log: Log) -> list[tuple[str, int | None, int | None, int, float]]:
    return [(r.collective, r.nodes, r.gpus, r.size_bytes, round(r.time_ns, 3)) for r in log.rows]


WANTED = [("all_reduce", 2, 4, size, time * 1000) for size, time in TIMES.items()]


@pytest.mark.parametrize("tag", ["", "0: ", " 3: ".lstrip(), "[0] ", "[1,0]<stdout>: ", "[1,0]<stdout>:"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_whatever_a_launcher_puts_before_lines(tmp_path: Path, tag: str, end: str) -> None:
    text = "".join(f"{tag}{line}{end}" for line in table("all_reduce", 2, 4, TIMES).splitlines())
    log = of(tmp_path, text)
    assert seen(log) == WANTED
    assert log.library.version == "2.29.2" and log.devices == {"NVIDIA H100 80GB HBM3"}
    assert (log.rows[0].dtype, log.rows[0].iterations, log.rows[0].line) == ("float", 20, 18)


def test_a_tag_before_each_piece_that_was_written(tmp_path: Path) -> None:
    """As in NVIDIA/nccl#1453: `sum      -1[0]    1626.5    0.64    1.24      0[0]    2302.3 ..`."""
    cut = row("all_reduce", 8, 1024, 22.35).index("-1") + 2
    text = "".join(f"[0] {line}\n" for line in table("all_reduce", 2, 4, {}).splitlines())
    line = row("all_reduce", 8, 1024, 22.35)
    text += f"[0] {line[:cut]}[0]{line[cut : cut + 33]}[0]{line[cut + 33 :]}\n"
    assert seen(of(tmp_path, text)) == WANTED[:1]


def test_what_nccl_prints_between_the_halves_of_a_row(tmp_path: Path) -> None:
    line = row("all_reduce", 8, 1 << 20, 61.5)
    cut = line.index("-1") + 2
    text = table("all_reduce", 2, 4, {})
    text += f"{line[:cut]}node-000:77:91 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo TREE proto LL128 channel"
    text += "{Lo..Hi}={0..15}\n" + 3 * "node-000:77:91 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
    text += f"{line[cut : cut + 33]}\n{line[cut + 33 :]}\n"
    log = of(tmp_path, text)
    assert seen(log) == [WANTED[1]]
    (choice,) = log.library.choices.values()
    assert (choice.algorithm, choice.protocol, choice.channels) == ("tree", "ll128", 16)


def test_several_tests_in_a_file_and_processes_between_each_other(tmp_path: Path) -> None:
    one, two = table("all_reduce", 2, 4, TIMES), table("all_gather", 2, 4, {2048: 30.0})
    assert seen(of(tmp_path, one + two)) == [*WANTED, ("all_gather", 2, 4, 2048, 30_000.0)]
    both = [f"0: {a}\n9: {b}\n" for a, b in zip(one.splitlines(), two.splitlines(), strict=False)]
    rest = [f"0: {a}\n" for a in one.splitlines()[len(two.splitlines()) :]]
    assert sorted(seen(of(tmp_path, "".join(both + rest)))) == sorted([*WANTED, ("all_gather", 2, 4, 2048, 30_000.0)])


def test_older_versions_without_a_root_and_with_errors_as_numbers(tmp_path: Path) -> None:
    text = """$ mpirun -np 2 ./build/all_reduce_perf -b 1250M -e 1250M -g 1
# nThread 1 nGpus 1 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid   1320 on node-a device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   2066 on node-b device  0 [0x00] Tesla V100-SXM2-16GB
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
  1310720000     327680000     float     sum  1234567    1.06    1.06  1e-06  1234600    1.06    1.06    N/A
"""
    log = of(tmp_path, text)
    assert log.left_out == {"with wrong results": 1}  # any error of a sum of whole numbers is one
    log = of(tmp_path, text.replace("1e-06", "0e+00"))
    assert seen(log) == [("all_reduce", 2, 1, 1310720000, 1234567e3)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (table("all_reduce", 2, 4, {1024: 20.0}, wrong=3), "with wrong results"),
        (table("all_reduce", 2, 4, {0: 20.0}), "without a size"),
        (table("all_reduce", 2, 4, {1024: 20.0}).replace("20.00", " 0.00").replace("30.00", "  N/A"), "without a time"),
        (table("all_reduce", 2, 4, {1 << 20: 100.0}).replace(" 10.49 ", " 99.99 "), "whose bandwidth is not that"),
        (table("all_reduce", 2, 4, {1 << 20: 100.0}).replace(" 18.35 ", "  9.18 "), "whose bus bandwidth is another"),
        (table("all_reduce", 2, 4, {1024: 20.0}).replace("agg iters: 1", "agg iters: 4"), "of several calls"),
        (table("all_reduce", 2, 4, {1024: 20.0}).replace("node-001 device  3", "node-002 device  3"), "uneven"),
        (table("all_reduce", 2, 4, {1024: 20.0}).split("  30.00")[0], "cut"),
    ],
)
def test_rows_that_are_left_out_are_counted(tmp_path: Path, text: str, why: str) -> None:
    log = of(tmp_path, text)
    assert not log.rows and [key for key in log.left_out if why in key], log.left_out


def test_a_row_that_contradicts_itself_is_named_with_its_line(tmp_path: Path) -> None:
    log = of(tmp_path, table("all_reduce", 2, 4, {1 << 20: 100.0}).replace(" 10.49 ", " 99.99 "))
    assert "x.log:18: 1048576 bytes in 100 us are 10.49 GB/s, not 99.99" in log.warnings[0]


def test_the_collective_is_never_guessed(tmp_path: Path) -> None:
    bare = "\n".join(line for line in table("all_gather", 2, 4, TIMES).splitlines() if "starting" not in line)
    assert of(tmp_path, bare).left_out == {"of an unknown collective": 3}
    assert of(tmp_path, bare, "all_gather-2x4.log").rows[0].collective == "all_gather"
    assert of(tmp_path, bare, "x.log", "all_gather").rows[0].collective == "all_gather"


def test_json_of_version_3_with_the_scatter_of_iterations(tmp_path: Path) -> None:
    times = [10.0] * 6 + [14.0] * 6
    document = {
        "version": 3, "args": ["/opt/all_reduce_perf_mpi", "-J", "x"], "env": ["PATH=/bin", "NCCL_ALGO=Ring"],
        "nccl_version": 22902, "config": {
            "aggregated_iterations": 1,
            "devices": [{"rank": r, "hostname": f"n{r // 2}", "device_info": "NVIDIA H100"} for r in range(4)],
        },
        "results": [
            {"size": 4096, "type": "float", "redop": "sum", "root": "-1", "out_of_place": {"time": 12.0, "nwrong": 0.0},
             "out_of_place_per_iter": {"avg_us": 12.0, "stdev_us": 2.0, "times_us": times},
             "in_place": {"time": 13.0, "nwrong": None}, "actual_iterations": 12},
            {"size": 8192, "out_of_place": None, "in_place": {"time": "nan"}},
        ],
    }  # fmt: skip
    log = of(tmp_path, json.dumps(document), "x.json")
    (only,) = log.rows
    assert seen(log) == [("all_reduce", 2, 2, 4096, 12_000.0)] and only.spread == pytest.approx(1 / 6)
    assert log.library.env == {"NCCL_ALGO": "Ring"} and log.library.version == "2.29.2"
    assert "from iteration 6 on the same takes 1.40 times as long" in log.warnings[0]
    assert step([10, 11, 9, 10, 10.5, 9.5, 10, 10.2, 9.8]) is None


OSU = """# OSU MPI-CUDA {} Test v7.3
# Size          {}
1                       {}
65536                   {}
"""


def test_osu(tmp_path: Path) -> None:
    (one, two) = of(tmp_path, OSU.format("Latency", "Latency (us)", "1.83", "9.0")).links
    assert (one.size_bytes, one.latency_ns, two.latency_ns) == (1, 1830.0, 9000.0)
    (_, two) = of(tmp_path, OSU.format("Bandwidth", "Bandwidth (MB/s)", "3.0", "24000.0")).links
    assert two.rate_bps == 192e9
    (_, two) = of(tmp_path, OSU.format("Bi-Directional Bandwidth", "Bandwidth (MB/s)", "3.0", "48000.0")).links
    assert two.rate_bps == 192e9
    head = "Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
    text = OSU.format("Allreduce Latency", head, "53.34  24.8  158.9 1000", "90.1 80.0 99.0 1000")
    assert of(tmp_path, text).left_out == {"of an MPI library": 2}
    log = of(tmp_path, text.replace("MPI-CUDA", "NCCL-CUDA"))
    assert seen(log) == [("all_reduce", None, None, 1, 53_340.0), ("all_reduce", None, None, 65536, 90_100.0)]


WRITE = """                    RDMA_Write {}BW Test
 Dual-port       : OFF          Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{}]    BW average[{}]   MsgRate[Mpps]
 65536      5000             0.00               {}              0.7
"""
LATENCY = """                    RDMA_Write Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          0.94           3.21         1.02              1.03            0.05            1.2                    3.2
"""


def test_perftest_units_and_directions(tmp_path: Path) -> None:
    (only,) = of(tmp_path, WRITE.format("", "Gb/sec", "Gb/sec", "392.1")).links
    assert (only.rate_bps, only.messages_per_s) == (pytest.approx(392.1e9), 0.7e6)
    (only,) = of(tmp_path, WRITE.format("", "MB/sec", "MB/sec", "1000.0")).links
    assert only.rate_bps == 1000 * 8 * 2**20  # it counts in MiB
    (only,) = of(tmp_path, WRITE.format("Bidirectional ", "Gb/sec", "Gb/sec", "784.2")).links
    assert only.rate_bps == pytest.approx(392.1e9)
    (only,) = of(tmp_path, LATENCY).links
    assert (only.size_bytes, only.latency_ns) == (2, 1020.0)
    assert not of(tmp_path, LATENCY.replace("RDMA_Write", "RDMA_Read") + LATENCY).links[1:]


DEBUG = """n1:7:9 [0] NCCL INFO NCCL_ALGO set by environment to Ring
n1:7:9 [0] NCCL INFO   Algorithm   |                            Tree                  |                            Ring                  |
n1:7:9 [0] NCCL INFO   Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |
n1:7:9 [0] NCCL INFO     AllReduce |     6.8/   3.2 |    14.0/  41.6 |    64.6/  81.6 |    10.5/   2.0 |    29.0/  46.0 |   100.2/  98.5 |
n1:7:9 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer
n1:7:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 24 cudaDev 0 nvmlDev 0 busId a4000 commId 0x1 - Init COMPLETE
n1:7:9 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA
n1:7:9 [0] NCCL INFO 8589934592 Bytes -> Algo 1 proto 2 time 86069.968750
n1:7:9 [0] NCCL INFO AllGather: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
"""


def test_what_nccl_says_of_itself(tmp_path: Path) -> None:
    library = of(tmp_path, DEBUG).library
    assert library.env == {"NCCL_ALGO": "Ring"} and (library.channels, library.p2p_per_peer) == (16, 2)
    assert library.table["all_reduce", "ring", "simple"] == (100.2, 98.5)
    assert library.table["all_reduce", "tree", "ll128"] == (14.0, 41.6)
    assert library.transports == {"NET/IB"}
    old, new = library.choices["", 24, 8589934592], library.choices["all_gather", 24, 24 * 1024]
    assert (old.algorithm, old.protocol, old.channels) == ("ring", "simple", None)
    assert (new.algorithm, new.protocol, new.channels) == ("ring", "ll", 4)  # it had counted one rank's bytes


RCCL_LOG = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid   1320 on node-a device  0 [0x0c] AMD Instinct MI300X
#   Rank  1 Pid   2066 on node-b device  0 [0x0c] AMD Instinct MI300X
RCCL version : 2.21.5-HEAD:0cbce2a
"""


def test_rccl_is_read_as_what_it_has_of_nccl(tmp_path: Path) -> None:
    """No NVLS, no PAT, no LL128, 256 threads, LL's slots of 16 KiB of data; what the log sets wins; it is said."""
    body = table("all_reduce", 2, 1, TIMES, header=False)
    log = of(tmp_path, RCCL_LOG + body, "all_reduce.log")
    assert seen(log) == [("all_reduce", 2, 1, size, time * 1000) for size, time in TIMES.items()]
    assert (log.library.name, log.library.version) == ("rccl", "2.21.5") and "RCCL is followed as" in log.warnings[0]
    settings = Settings.of(log.library.env)
    assert not settings.nvls and settings.pat is False and settings.threads == 256
    assert ("all_reduce", "ll128") not in settings.protocols and ("all_reduce", "ll") in settings.protocols
    assert settings.ll_buffer_bytes == 8 * 256 * 8 * 16  # lines a thread x threads x steps x bytes of a line
    set_here = "n1:7:9 [0] NCCL INFO NCCL_PROTO set by environment to Simple\n"
    assert of(tmp_path, RCCL_LOG + set_here + body, "all_reduce.log").library.env["NCCL_PROTO"] == "Simple"
    choices = {choose("all_reduce", size, Servers(2, 8, 8), settings).algorithm for size in TIMES}
    assert choices <= {"tree", "ring"}


PCI = '<pci busid="{}" link_speed="{} GT/s PCIe" link_width="16">'
TOPOLOGY = (
    '<system version="2"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">'
    + PCI.format("0", "32.0") + PCI.format("1", "32.0")
    + '<gpu dev="0" sm="90" rank="0"><nvlink target="9" count="9"/><nvlink target="8" count="9"/></gpu></pci>'
    + PCI.format("2", "16.0")
    + '<nic><net name="mlx5_0" dev="0" speed="400000" gdr="1" coll="1"/></nic></pci></pci>'
    + PCI.format("3", "8.0") + '<nic><net name="eth" speed="25000"/></nic></pci></cpu></system>'
)  # fmt: skip


def test_a_topology(tmp_path: Path) -> None:
    server = topology(TOPOLOGY.encode(), "t.xml")
    assert (server.gpus, server.sm, server.vendor) == (1, 90, "AuthenticAMD")
    assert server.nics == [("mlx5_0", 400e9), ("eth", 25e9)] and server.collnet and server.gdr
    assert server.scale_up_bps == 18 * 200e9  # 18 links of 25 GB/s: an H100's
    assert server.pcie_bps == pytest.approx(16 * 7.877e9)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><system>&b;</system>'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (BOMB, "document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><system/>', "document type"),
        ("<graphs/>", "is not NCCL's topology"),
        ("<system><cpu>", "no XML"),
        ("<system/>", "no GPU"),
        ("<system>" + 40 * "<pci>" + 40 * "</pci>" + "</system>", "deeper than any server"),
    ],
)
def test_topologies_that_are_none(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        topology(text.encode(), "t.xml")
    assert what in error.value.what and error.value.where.startswith("t.xml")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_ROWS", 2)
    with pytest.raises(InputError, match="more than 2 rows"):
        of(tmp_path, table("all_reduce", 2, 4, TIMES))
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        of(tmp_path, b"#" * (1 << 20) + b"#")
    for text in (b"", b"hello\n", b"{", b"[" * 100_000, b"{" + b'"a":[' * 100_000):
        with pytest.raises(InputError):
            of(tmp_path, text)
    with pytest.raises(InputError, match="no such file"):
        read([str(tmp_path / "none")])


MANY = "9" * 5000
CHOICE = "n1:7:9 [0] NCCL INFO AllReduce: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{{}..{}}}\n"


@pytest.mark.parametrize(
    "line",
    [
        CHOICE.format(MANY, 0, 3), CHOICE.format(8, 0, MANY), CHOICE.format(8, 9, 3), CHOICE.format(0, 0, 3),
        f"n1:7:9 [0] NCCL INFO {MANY} coll channels, 1 collnet channels, {MANY} p2p channels, 2 p2p channels per peer\n",
        f"n1:7:9 [0] NCCL VERSION NCCL version {MANY}.1.1\n", f"# nccl-tests version 2.17.8 nccl-library={MANY}\n",
        f"# Rank {MANY} Group 0 Pid 1 on a device 0 [0] H100\n",
        "n1:7:9 [0] NCCL INFO NCCL_X\x9b2J set by environment to \x1b]0;mine\x07\n",
        "".join(f"n1:7:9 [0] NCCL INFO NCCL_A{n} set by environment to x\n" for n in range(2000)),
    ],
)  # fmt: skip
def test_lines_that_no_nccl_prints(tmp_path: Path, line: str) -> None:
    """Numbers of thousands of digits, channels backwards, control characters, settings without end: rows are read."""
    log = of(tmp_path, table("all_reduce", 2, 4, TIMES) + line)
    assert seen(log) == WANTED
    assert all(0 < (one.channels or 1) <= 1000 for one in log.library.choices.values())
    assert len(log.library.env) <= 500 and "".join([*log.library.env, *log.library.env.values()]).isprintable()
    assert len(log.library.version) < 12


def test_calls_launched_as_one_are_left_out_however_many(tmp_path: Path) -> None:
    text = table("all_reduce", 2, 4, TIMES).replace("agg iters: 1", f"agg iters: {MANY}")
    assert of(tmp_path, text).left_out == {"of several calls launched as one": 3}


PIECES = st.sampled_from(
    [
        *table("all_reduce", 1, 2, {1024: 20.0}).splitlines(), *DEBUG.splitlines(), *LATENCY.splitlines(),
        *OSU.format("Latency", "us", "1", "2").splitlines(), "collective,nodes,gpus_per_node,size_bytes,time_us",
        "all_reduce,1,2,3,4", half("all_reduce", 2, 9, 1.0), "[0] ", "1e999", "-1", "nan", "N/A", "\x1b[2J", "\x00",
        "# Rank 1e9 Group 0 Pid 1 on", '{"results": [{"size": 1e400}]}', "0 0 a a 0 0 0 0 0 0 0 0 0",
    ]
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    st.lists(PIECES | st.text(max_size=40), max_size=30),
    st.sampled_from(["\n", "\r\n", "\r", ""]),
    st.integers(0, 400),
)
@example([table("all_reduce", 2, 4, {1024: 20.0})], "", 1000)
def test_anything_is_read_or_refused(pieces: list[str], end: str, cut: int) -> None:
    """Whatever stands in a file: rows that can be used, or an error for the person."""
    text = end.join(pieces)[: cut * 10].encode("utf-8", "replace")
    log = Log()
    try:
        module._into(log, text, "x.log", None)
    except UserError as error:
        assert error.what and error.where.startswith("x.log")
    assert all(one.size_bytes > 0 and one.time_ns > 0 and one.line > 0 for one in log.rows)
