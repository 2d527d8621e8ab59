"""Policies of several paths against their sources, written down a second time.

fabricd's files are compiled with a driver that makes a queue pair and reads what happens to it. Random numbers come
from a list that both sides know, so that every choice can be foretold.

REPS: Bonato et al. 2025, the pseudo-code of onAck, onSend, onFailureDetection and getNextEV. Bitmap and turns: UEC 1.0,
3.6.16.3 and 3.6.16.4, with the penalties of htsim's UecMpBitmap. PLB: Linux's tcp_plb.c, call by call.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hardware.build import CFLAGS, SANITIZE, SOURCES
from hardware.cc import Setting
from hardware.multipath import POLICIES

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/fabric.h"
#include "transport/multipath.h"
#include "transport/qp.h"
#include "transport/repeat.h"

static uint64_t draws, delivered;
uint64_t multipath_draw(const struct fabric *f, struct qp *q)
{
	(void)f;
	(void)q;
	return (++draws * 0x9e3779b97f4a7c15u) >> 20;
}
double multipath_param(const struct qp *q, unsigned which) { return q->multipath->p.v[which]; }
void *multipath_own(const struct qp *q) { return q->multipath + 1; }
void *multipath_own_of_entropies(const struct qp *q)
{
	return (char *)(q->multipath + 1) + q->multipath->p.policy->state_bytes;
}
uint64_t repeat_delivered(const struct qp *q) { (void)q; return delivered; }

int main(int argc, char **argv)
{
	static struct qp q;
	static struct fabric f;
	static uint64_t room[1 << 16];
	struct multipath *m = q.multipath = (struct multipath *)room;
	char what;
	long long a, b;

	m->p.entropies = (uint32_t)atoi(argv[2]);
	REGISTRY_EACH(struct multipath_policy, multipath_policies, policy)
		if (!strcmp((*policy)->name, argv[1]))
			m->p.policy = *policy;
	for (int i = 3; i < argc; i++)
		m->p.v[i - 3] = atof(argv[i]);
	const struct multipath_policy *p = m->p.policy;
	if (p->start)
		p->start(&f, &q);
	while (scanf(" %c %lld %lld", &what, &a, &b) == 3)
		switch (what) {
		case 'p': printf("%u\n", p->pick(&f, &q)); q.send++; q.left++; break;
		case 'a':
			if (p->returned)
				p->returned(&f, &q, (uint32_t)a, b);
			break;
		case 'l':
			if (p->lost)
				p->lost(&f, &q, (uint32_t)a);
			break;
		case 'c':
			if (p->trimmed)
				p->trimmed(&f, &q, (uint32_t)a);
			break;
		case 't':
			if (p->timeout)
				p->timeout(&f, &q);
			break;
		case 'n': f.clock.now = a * PS_PER_NS; break;
		case 'd': delivered = q.acked = (uint64_t)a; break;
		}
	return 0;
}
"""

Event = tuple[str, int, int]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "driver.c").write_text(DRIVER)
    policies = [str(SOURCES / "multipath" / f"{name}.c") for name in POLICIES]
    subprocess.run(
        ["cc", *CFLAGS, *SANITIZE, "-Wno-unused-function", f"-I{SOURCES}", "driver.c", *policies, "-o", "driver"],
        cwd=folder, check=True,
    )  # fmt: skip
    return folder / "driver"


def picks(driver: Path, policy: str, entropies: int, values: dict[str, float], events: Sequence[Event]) -> list[int]:
    """What the policy takes for each packet."""
    every = POLICIES[policy].values(Setting(400e9, 8000, 4096), values)
    args = [policy, str(entropies), *(repr(v) for v in every.values())]
    text = "".join(f"{what} {a} {b}\n" for what, a, b in events)
    done = subprocess.run([driver, *args], input=text, capture_output=True, text=True, check=True, timeout=60)
    return [int(line) for line in done.stdout.split()]


class Draws:
    def __init__(self, entropies: int) -> None:
        self.entropies, self.n = entropies, 0

    def number(self) -> int:
        self.n += 1
        return (self.n * 0x9E3779B97F4A7C15 % (1 << 64)) >> 20

    def entropy(self) -> int:
        return self.number() % self.entropies


class Reps:
    """The paper's pseudo-code, line by line."""

    def __init__(self, draws: Draws, *, buffer: int, freeze: float, explore: int) -> None:
        self.draws, self.size, self.timeout, self.bdp = draws, buffer, freeze, explore
        self.buffer: list[list[Any]] = [[None, False] for _ in range(buffer)]  # cachedEV, isValid
        self.head = self.valid = self.explore = 0
        self.freezing, self.exit, self.on_loss = False, 0.0, False

    def on_ack(self, ev: int, marked: bool, now: float) -> None:
        if marked:
            return
        self.valid += not self.buffer[self.head][1]
        self.buffer[self.head] = [ev, True]
        self.head = (self.head + 1) % self.size
        if self.freezing and now > self.exit:
            self.freezing, self.explore = False, self.bdp

    def on_failure(self, now: float) -> None:
        if not self.freezing and self.explore == 0:
            self.freezing, self.exit = True, now + self.timeout

    def on_send(self) -> int:
        empty = all(ev is None for ev, _ in self.buffer)
        if empty or self.explore > 0 or (self.valid == 0 and not self.freezing):
            self.explore = max(self.explore - 1, 0)
            return self.draws.entropy()
        return self.next_ev()

    def next_ev(self) -> int:
        if self.valid > 0:
            at = (self.head - self.valid) % self.size
            self.buffer[at][1] = False
            self.valid -= 1
        else:
            if self.buffer[self.head][0] is None:  # a slot that was never filled: the paper's buffer is full by then
                self.head = 0
            at = self.head
            self.head = (self.head + 1) % self.size
        return int(self.buffer[at][0])


class Turn:
    def __init__(self, draws: Draws) -> None:
        self.draws, self.seen = draws, 0
        self.order = draws.entropy()

    def next(self) -> int:
        entropy = self.seen ^ self.order
        self.seen += 1
        if self.seen == self.draws.entropies:
            self.seen, self.order = 0, self.draws.entropy()
        return entropy


class Bitmap:
    def __init__(self, draws: Draws, *, mark: int, loss: int, most: int, saturated: float) -> None:
        self.turn, self.penalty = Turn(draws), [0] * draws.entropies
        self.mark, self.loss, self.most, self.limit = mark, loss, most, saturated * draws.entropies

    def heard(self, ev: int, penalty: int) -> None:
        self.penalty[ev] = min(self.penalty[ev] + penalty, self.most)

    def on_send(self) -> int:
        ev = self.turn.next()
        while self.penalty[ev]:
            saturated = sum(p > 0 for p in self.penalty) > self.limit
            self.penalty[ev] -= 1
            if saturated:
                break
            ev = self.turn.next()
        return ev


def drawn_events(seed: int, entropies: int, steps: int, *, with_timeouts: bool) -> Iterator[Event]:
    """Packets in bursts; answers, marks, losses, what was trimmed, timeouts as time goes on."""
    draw = random.Random(seed)
    now, marks = 0, draw.choice((0.0, 0.1, 0.6))
    for _ in range(steps):
        now += draw.choice((10, 300, 2000))
        yield "n", now, 0
        for _ in range(draw.randrange(6)):
            yield "p", 0, 0
        for _ in range(draw.randrange(6)):
            yield "a", draw.randrange(entropies), int(draw.random() < marks)
        if draw.random() < 0.05:
            yield "l", draw.randrange(entropies), 0
        if draw.random() < 0.05:
            yield "c", draw.randrange(entropies), 0
        if with_timeouts and draw.random() < 0.02:
            yield "t", 0, 0


def foretold(model: Any, events: Sequence[Event], heard: Callable[[Any, Event, int], None]) -> list[int]:
    now, chosen = 0, []
    for event in events:
        if event[0] == "n":
            now = event[1]
        elif event[0] == "p":
            chosen.append(model.on_send())
        else:
            heard(model, event, now)
    return chosen


def heard_by_reps(model: Reps, event: Event, now: int) -> None:
    """What was trimmed is no failure, and is not used again: UecMpReps does nothing at PATH_NACK."""
    if event[0] == "a":
        model.on_ack(event[1], bool(event[2]), now)
    elif event[0] == "t" or (event[0] == "l" and model.on_loss):
        model.on_failure(now)


def heard_by_bitmap(model: Bitmap, event: Event, now: int) -> None:
    if event[0] in "lc" or (event[0] == "a" and event[2]):
        model.heard(event[1], model.mark if event[0] == "a" else model.loss)  # UecMpBitmap: PATH_NACK, 4 as well


@pytest.mark.parametrize("seed", range(4))
def test_reps_takes_what_its_papers_pseudo_code_takes(driver: Path, seed: int) -> None:
    entropies, buffer = (16, 8) if seed % 2 else (256, 3)
    events = list(drawn_events(seed, entropies, 2000, with_timeouts=True))
    values = {"buffer": buffer, "freeze": 20_000, "explore": 7}
    model = Reps(Draws(entropies), **values)  # type: ignore[arg-type]
    model.on_loss = seed > 1
    values["freeze_on"] = seed <= 1
    expected = foretold(model, events, heard_by_reps)
    assert picks(driver, "reps", entropies, values, events) == expected


@pytest.mark.parametrize("seed", range(4))
def test_bitmap_passes_over_what_was_marked_or_lost(driver: Path, seed: int) -> None:
    entropies = 16 if seed % 2 else 256
    events = list(drawn_events(seed, entropies, 2000, with_timeouts=False))
    values: dict[str, Any] = {"mark": 1, "loss": 4, "most": 15, "saturated": 0.5 if seed < 2 else 0.125}
    model = Bitmap(Draws(entropies), **values)
    chosen = picks(driver, "bitmap", entropies, values, events)
    assert chosen == foretold(model, events, heard_by_bitmap)
    turn = Turn(Draws(entropies))
    assert chosen != [turn.next() for _ in chosen]


def test_bitmap_goes_by_marks_again_after_nearly_all_were_marked(driver: Path) -> None:
    """15 of 16 are marked once: all are taken in turn until half of them wait; then a loss counts."""
    burst: list[Event] = [("a", ev, 1) for ev in range(15)]
    after: list[Event] = [("p", 0, 0)] * 32 + [("l", 3, 0)] + [("p", 0, 0)] * 32
    chosen = picks(driver, "bitmap", 16, {}, burst + after)
    turn = Turn(Draws(16))
    assert chosen[:7] == [turn.next() for _ in range(7)]
    assert 3 in chosen[:32] and 3 not in chosen[32:]


def test_in_turn_each_entropy_comes_once_in_every_round_and_rounds_differ(driver: Path) -> None:
    chosen = picks(driver, "round", 64, {}, [("p", 0, 0)] * 640)
    rounds = [chosen[k : k + 64] for k in range(0, 640, 64)]
    assert all(sorted(one) == list(range(64)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 5
    turn = Turn(Draws(64))
    assert chosen == [turn.next() for _ in range(640)]


def test_at_random_it_is_what_is_drawn(driver: Path) -> None:
    draws = Draws(32)
    assert picks(driver, "random", 32, {}, [("p", 0, 0)] * 200) == [draws.entropy() for _ in range(200)]


class Plb:
    """Linux: tcp_plb_update_state() once a round trip, tcp_plb_check_rehash(), tcp_plb_update_state_upon_rto()."""

    def __init__(self, draws: Draws, *, threshold: float, rounds: int, idle_rounds: int, suspend: float) -> None:
        self.draws, self.threshold, self.rounds = draws, threshold, rounds
        self.idle_rounds, self.suspend = idle_rounds, suspend
        self.hash = self.consecutive = 0
        self.pause_until = 0.0

    def rethink(self) -> None:
        others = self.draws.entropies - 1
        self.hash = (self.hash + 1 + self.draws.number() % others) % self.draws.entropies

    def update_state(self, ratio: float) -> None:
        if ratio < self.threshold:
            self.consecutive = 0
        elif self.consecutive < self.rounds:
            self.consecutive += 1

    def check_rehash(self, now: float, packets_out: int) -> None:
        forced = self.consecutive >= self.rounds
        idle = bool(self.idle_rounds) and not packets_out and self.consecutive >= self.idle_rounds
        if (forced or idle) and now >= self.pause_until:
            self.rethink()
            self.consecutive = 0

    def upon_rto(self, now: float) -> None:
        self.rethink()  # tcp_write_timeout()
        self.pause_until = now + self.suspend + self.draws.number() % (int(self.suspend) * 1000) / 1000
        self.consecutive = 0


@pytest.mark.parametrize("seed", range(4))
def test_plb_moves_after_congested_round_trips_as_linux_does(driver: Path, seed: int) -> None:
    """Round trips of some packets each, acknowledged one by one, some idle at their end."""
    draw = random.Random(seed)
    values: dict[str, Any] = {"threshold": 0.5, "rounds": 5, "idle_rounds": 3, "suspend": 30_000}
    model, events, expected = Plb(Draws(16), **values), [], []
    sent = come = since = marks = now = 0
    share, end = 0.0, 0
    for k in range(3000):
        now += draw.randrange(2000)
        events.append(("n", now, 0))
        if k % 40 == 0:
            share = draw.choice((0.1, 0.9))
        for _ in range(draw.randrange(1, 8)):
            model.check_rehash(now, sent - come)
            events.append(("p", 0, 0))
            expected.append(model.hash)
            sent += 1
        idle = draw.random() < 0.3
        for _ in range(sent - come if idle else draw.randrange(sent - come + 1)):
            come += 1
            marked = draw.random() < share
            marks += marked
            events += [("d", come, 0), ("a", 0, int(marked))]
            if come > end:
                model.update_state(marks / (come - since))
                since, marks, end = come, 0, sent
        if draw.random() < 0.01:
            events.append(("t", 0, 0))
            model.upon_rto(now)
    assert picks(driver, "plb", 16, values, events) == expected
    assert len(set(expected)) > 4
