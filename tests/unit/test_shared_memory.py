"""Memory that a rank shares with its NIC (hardware/elements/shared.c): mapped as huge pages can be, made at once."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workloads.base import native
from workloads.verbs import Region

NAME = f"railbed-test-{os.getpid()}"
HUGE = 2 << 20


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create(NAME)
    yield fd
    os.close(fd)


def mapped() -> int:
    return Path("/proc/self/maps").read_text().count(NAME)


@pytest.mark.parametrize("nbytes", [1, 4096, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 12345])
def test_all_pages_are_there(file: int, nbytes: int) -> None:
    os.ftruncate(file, nbytes)
    memory = native.shared(file, nbytes, True)
    assert os.fstat(file).st_blocks * 512 >= nbytes  # tmpfs counts the pages that there are
    region = Region(memory, key=7)
    assert len(region) == nbytes and region.address % HUGE == 0
    assert not region.view("uint8").any()
    region.view("uint8")[-1] = 200
    with mmap.mmap(file, nbytes) as other:
        assert other[nbytes - 1] == 200


def test_pages_that_are_not_to_be_made_come_when_they_are_touched(file: int) -> None:
    os.ftruncate(file, 4 * HUGE)
    region = Region(native.shared(file, 4 * HUGE, False), key=7)
    assert os.fstat(file).st_blocks == 0
    region.view("uint8")[HUGE] = 1
    assert 0 < os.fstat(file).st_blocks * 512 <= HUGE


def test_memory_is_there_as_long_as_somebody_looks_at_it(file: int) -> None:
    os.ftruncate(file, HUGE)
    region = Region(native.shared(file, HUGE, True), key=7)
    part = region.part(4096, 4096).view("uint32")
    del region
    part[:] = 5
    assert mapped() == 1 and int(part.sum()) == 5 * 1024
    del part
    assert mapped() == 0


def test_a_rank_does_without_the_library(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    os.ftruncate(file, 8192)
    monkeypatch.setattr(native, "_library", lambda: None)
    assert np.frombuffer(native.shared(file, 8192, True), np.uint8).size == 8192


def test_what_cannot_be_mapped_is_an_error(file: int) -> None:
    with pytest.raises((OSError, ValueError)):
        native.shared(file, 1 << 62, True)
