"""Writes through a middle tier: the data whatever the timing, what a file may say, and what bounds the throughput."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.experiment.steps.programs import Storage
from testbed.plan.steps.plan import plan
from tests.parts.fake_fabric import FakeFabric
from tests.parts.fake_run import collective, run
from tests.parts.fake_run import plan as fake_plan
from workloads.programs import block, mailbox
from workloads.programs.closed_form import block_write_by_hosts_ns, block_write_by_nics_ns
from workloads.times.messages import Costs, Link, Path

FULL = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = """
name: blocks
fabric:
  topology: {star: {hosts: 4}}
  nic: {kind: NIC}
workload:
- {collective: block_write, STEP}
"""


def step(algorithm: str, ranks: int, sizes: list[int], **keys: Any) -> dict[str, Any]:
    helpers = {"helpers": [ranks]} if algorithm == "nic" else {}
    told = Storage(**keys).model_dump(by_alias=True)
    its = {"iterations": 2, "ranks": list(range(ranks)), "storage": told, **helpers}
    return collective("block_write", sizes, algorithm=algorithm, **its)


@FULL
@given(
    st.sampled_from(["host", "nic"]), st.integers(1, 3), st.integers(1, 4), st.data(), st.integers(1, 5),
    st.integers(1, 3), st.sampled_from([1.0, 2.1, 30.0]), st.integers(0, 2**32),
)  # fmt: skip
def test_every_block_is_where_it_belongs_whatever_the_timing(
    algorithm: str, writers: int, servers: int, data: st.DataObject, outstanding: int, cores: int, ratio: float,
    seed: int,
) -> None:  # fmt: skip
    replicas, blocks = data.draw(st.integers(1, servers)), data.draw(st.integers(1, 20))
    ranks = 1 + writers + servers
    keys = {"servers": servers, "replicas": replicas, "outstanding": outstanding, "ratio": ratio, "block": "512B"}
    told = step(algorithm, ranks, [512 * blocks, 512], **keys, host={"cores": cores})
    fake = FakeFabric(ranks + 1, seed, any_order=seed % 2 == 1)
    lines, errors = run(fake, fake_plan(ranks, told))
    assert (fake.error, errors) == (None, [])
    assert len(lines) == ranks * 2 * 2 and {line["wrong"] for line in lines} == {0}


@pytest.mark.parametrize("algorithm", ["host", "nic"])
@pytest.mark.parametrize("at", [0, -1])
def test_a_damaged_block_is_counted(algorithm: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = block.compress

    def damaged(data: bytes) -> bytes:
        made = bytearray(packed(data))
        made[at] ^= 1
        return bytes(made)

    monkeypatch.setattr("workloads.programs.storage.compress", damaged)
    fake = FakeFabric(4, 1)
    lines, _ = run(fake, fake_plan(3, step(algorithm, 3, [4096])))
    assert {line["rank"]: line["wrong"] > 0 for line in lines} == {0: False, 1: False, 2: True}


def test_headers_alone_reach_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the NIC no message that the middle tier's host gets is longer than a header."""
    longest: dict[int, int] = {}
    read = mailbox.Mailbox.read

    def seen(self: mailbox.Mailbox, record: Any, nbytes: int | None = None) -> bytes:
        longest[self.peer] = max(longest.get(self.peer, 0), record.nbytes)
        return read(self, record, nbytes)

    monkeypatch.setattr(mailbox.Mailbox, "read", seen)
    fake = FakeFabric(4, 1)
    run(fake, fake_plan(3, step("nic", 3, [8192])))
    assert longest[3] == block.HEADER_BYTES or longest[3] > 512  # from the complex: headers, and compressed blocks
    assert longest[1] == block.HEADER_BYTES + 4096  # from the writer, at the complex


@given(st.integers(9, 14), st.floats(1, 20), st.integers(0, 99))
def test_blocks_compress_as_stated(power: int, ratio: float, seed: int) -> None:
    data = block.block(seed, 1, 2, 3, 1 << power, ratio)
    packed = block.compress(data)
    assert len(data) == 1 << power and block.wrong_in(packed, data) == 0
    assert len(packed) == pytest.approx(len(data) / ratio, abs=64 + 0.1 * len(data) / ratio)
    assert len(packed) <= len(data) + block.MOST_GROWTH
    assert block.wrong_in(block.compress(b"\1" + data[1:]), data) == (data[0] != 1)
    assert block.wrong_in(packed[: len(packed) // 2], data) == len(data)


def test_each_server_gets_its_share() -> None:
    assert [block.servers_of(b, 3, 2) for b in range(4)] == [[0, 1], [1, 2], [2, 0], [0, 1]]


def test_what_workers_are_told() -> None:
    made = plan(loads(TEXT.replace("NIC", "off_path").replace("STEP", "algorithm: nic, sizes: [4KiB]")))
    assert made.told()["steps"][0]["helpers"] == [4] and made.endpoints == [0, 1, 2, 3, 4]
    assert made.told()["steps"][0]["storage"]["host"] == {"cores": 4, "compress": 6.24e9}


@pytest.mark.parametrize(
    ("step", "key", "what", "hint"),
    [
        ("algorithm: nic, sizes: [4KiB]", "algorithm", "nic works on compute complexes", "kind: off_path"),
        ("sizes: [4KiB], storage: {replicas: 3}", "replicas", "3 replicas on 1 storage servers", "more servers"),
        ("sizes: [4KiB], storage: {servers: 3}", "servers", "3 storage servers of 4 ranks leave no writer", "1 to 2"),
        ("sizes: [5KiB]", "sizes[0]", "5120 bytes are 1.25 blocks", "a multiple of 4096B"),
        ("sizes: [1GiB]", "sizes[0]", "262144 blocks", "at most 10000"),
        ("sizes: [4KiB], storage: {nic: {compress: 0Gbps}}", "storage.nic.compress", "0Gbps is out of bounds", ""),
        ("sizes: [4KiB], storage: {ratio: 0.5}", "storage.ratio", "0.5 is out of bounds", ""),
        ("sizes: [4KiB], ranks: [0, 1]", "ranks", "block_write takes at least 3 ranks, not 2", ""),
    ],
)
def test_mistakes(step: str, key: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        loads(TEXT.replace("NIC", "plain").replace("STEP", step), "t.yaml")
    found = [error.value, *error.value.also]
    mine = next(one for one in found if what in one.what)
    assert mine.where.startswith("t.yaml:7: workload[0]") and key in mine.where and hint in mine.hint


def test_what_bounds_the_throughput_by_hand() -> None:
    """Cores of 6.24 Gb/s up to the cable, which carries 3 / 2.1 bytes for each that is written: at most 70 Gb/s on
    100 Gb/s without headers.  So a NIC at the cable's rate has 11 times what one core has, 4.3 times what 2.6 have."""
    path, costs = Path((Link(100e9, 500),) * 2, (500.0,)), Costs()

    def rates(cores: int) -> tuple[float, float]:
        told = Storage(servers=3, replicas=3, host={"cores": cores}).model_dump(by_alias=True)
        times = [of(8, 1 << 22, path, costs, told) for of in (block_write_by_hosts_ns, block_write_by_nics_ns)]
        return (1 << 25) / times[0], (1 << 25) / times[1]

    assert [rates(cores)[0] for cores in (1, 2, 4)] == pytest.approx([6.24, 12.48, 24.96])
    assert 55 < rates(1)[1] < 100 * 2.1 / 3
    assert rates(2)[1] / rates(2)[0] > 4.3 > rates(3)[1] / rates(3)[0]
    # With many cores the one that handles headers and posts is left: 300 ns, and 4 times 100, for 4 KiB.
    assert rates(64)[0] == pytest.approx(4096 * 8 / 700)


def test_the_least_is_without_waking_which_a_busy_core_does_once_for_many_messages() -> None:
    """64 blocks on 16 cores that wake up in 2 us take 86.8 us on the fabric: less than 64 x 4 wakes."""
    path, told = Path((Link(100e9, 500),) * 2, (500.0,)), Storage(servers=3, replicas=3, host={"cores": 16})
    least = block_write_by_hosts_ns(8, 64 << 12, path, Costs(wake_ns=2000), told.model_dump(by_alias=True))
    assert least == pytest.approx(64 * 700) and least < 86_750 < 64 * 4 * 2000
