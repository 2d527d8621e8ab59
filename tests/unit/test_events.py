"""fabricd's event queue against a list that is searched: the same events, in the same order, divided or not."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from hardware.build import CFLAGS, SANITIZE, SOURCES

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "engine/division.h"
#include "engine/event.h"
#include "engine/fabric.h"

#define MOST 800
static struct event list[MOST];
static size_t n;
static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % below;
}

static bool before(const struct event *x, const struct event *y)
{
	return x->t != y->t ? x->t < y->t : x->key != y->key ? x->key < y->key : x->seq < y->seq;
}

static bool odd(struct event *e, void *context)
{
	(void)context;
	return e->seq & 1;
}

static size_t there(const struct division *d)
{
	return d->partition[0].heap.n + d->partition[1].heap.n + d->partition[2].heap.n;
}

/* Each event is where it belongs */
static bool divided(const struct fabric *f)
{
	size_t of_all = 0;

	for (size_t i = 0; i < n; i++)
		of_all += event_of_all(event_kind(&list[i]));
	return f->heap.n == (f->division->in_force ? of_all : n) && f->heap.n + there(f->division) == n;
}

static bool forget(struct fabric *f)
{
	size_t left = 0;

	event_forget(f, odd, NULL);
	for (size_t i = 0; i < n; i++)
		if (!(list[i].seq & 1))
			list[left++] = list[i];
	n = left;
	return f->heap.n + there(f->division) == n;
}

int main(void)
{
	static uint8_t of[8] = {0, 1, 2, 0, 1, 2, 2, 2};
	static struct division division = {.count = 3, .of = of};
	static struct fabric f = {.division = &division};
	struct heap *from;
	struct event e;
	ps_t now = 0;

	for (int step = 0; step < 60000; step++) {
		if (step % 15000 == 14999 && !forget(&f))
			return 1;
		if (step % 1777 == 1776)
			events_divide(&f, !division.in_force);
		if (!divided(&f))
			return 4;
		division.by = (uint32_t)draw(4);
		if (n < MOST && draw(100) < (step / 6000 % 2 ? 70 : 40)) {
			/* few places and times, so that many share one; often before others of the same place */
			uint64_t kind = draw(EVENT_KINDS), node = draw(8), port = draw(2);
			struct event new = {.t = now + (ps_t)draw(40), .seq = draw(1000)};
			new.key = kind << 56 | node << 32 | port << 16;
			event_add(&f, new.t, (enum event_kind)kind, (uint32_t)node, (uint32_t)port, 0, new.seq, NULL, 0);
			list[n++] = new;
			continue;
		}
		const struct event *next = event_next(&f, &from);
		if (!next || !event_pop(from, &e)) {
			if (n)
				return 2;
			continue;
		}
		size_t first = 0;
		for (size_t i = 1; i < n; i++)
			if (before(&list[i], &list[first]))
				first = i;
		if (!n || e.t != list[first].t || e.key != list[first].key || e.seq != list[first].seq)
			return 3;
		now = e.t;
		list[first] = list[--n];
	}
	events_free(&f.heap);
	for (int i = 0; i < 3; i++)
		events_free(&division.partition[i].heap);
	return 0;
}
"""


def test_events_come_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "events.c").write_text(PROGRAM)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = [str(tmp_path / "events.c"), str(SOURCES / "engine" / "event.c")]
    program = str(tmp_path / "events")
    subprocess.run([*compiler, *CFLAGS, *SANITIZE, f"-I{SOURCES}", *sources, "-o", program], check=True)
    assert subprocess.run([program], check=False).returncode == 0
