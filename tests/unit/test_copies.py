"""Copies that a thread carries out, against the same made one after the other; and no race, says ThreadSanitizer."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from hardware.build import CFLAGS, SANITIZE, SOURCES

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/copies.h"

#define MEMORY (1u << 16)
#define LONGEST 4096
static uint8_t ours[MEMORY], plain[MEMORY];
static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

/* What one copy writes others read and write: only in their order they give the same */
static void copy(uint32_t round)
{
	uint32_t bytes = draw(2) ? LONGEST : draw(LONGEST), from = draw(MEMORY - LONGEST), to = draw(MEMORY - LONGEST);

	if (from < to + bytes && to < from + bytes)
		return;
	memcpy(plain + to, plain + from, bytes);
	if (copies_taken()) {
		copies_add(ours + to, ours + from, bytes);
	} else {
		copies_settle();
		memcpy(ours + to, ours + from, bytes);
	}
	if (draw(round % 2 ? 4 : 2000) == 0) { /* few, and more than the ring has room for */
		uint32_t at = draw(MEMORY);
		copies_settle();
		ours[at]++;
		plain[at]++;
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && atoi(argv[1]) != copies_start())
		return 2;
	for (uint32_t i = 0; i < MEMORY; i++)
		ours[i] = plain[i] = (uint8_t)draw(256);
	for (uint32_t round = 0; round < 8; round++) {
		for (int i = 0; i < 4000; i++)
			copy(round);
		copies_settle();
		if (memcmp(ours, plain, MEMORY))
			return 1;
	}
	return 0;
}
"""


def program(folder: Path, flags: list[str]) -> str:
    (folder / "copies.c").write_text(PROGRAM)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = [str(folder / "copies.c"), *(str(SOURCES / "base" / name) for name in ("copies.c", "wall.c"))]
    subprocess.run([*compiler, *CFLAGS, *flags, f"-I{SOURCES}", *sources, "-o", folder / "copies"], check=True)
    return str(folder / "copies")


@pytest.mark.parametrize("flags", [SANITIZE, ["-O1", "-fsanitize=thread"]], ids=["address", "thread"])
def test_copies_are_made_in_their_order(tmp_path: Path, flags: list[str]) -> None:
    threads = len(os.sched_getaffinity(0)) > 1
    # where addresses are very random ThreadSanitizer finds no place
    fixed = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], check=False).returncode == 0 else []
    command = [*fixed, program(tmp_path, flags), str(int(threads))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot run here")
    assert (done.returncode, done.stderr) == (0, "")


def test_there_is_no_thread_without_a_second_processor(tmp_path: Path) -> None:
    one = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(["taskset", "-c", one, program(tmp_path, SANITIZE), "0"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
