/* How far running workers let the clock go, which of them hang, and what those lack that wait themselves
 *
 * Theory of Operation
 *
 * The clock may not pass the earliest time at which a worker that runs can act.  Workers
 * take turns by the thousand, so the earliest is kept in a tree: leaf n + i is rank i,
 * node k has the earlier of its children 2k and 2k + 1, and 1 is the root.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/patience.h"
#include "base/units.h"
#include "base/wall.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "records/records.h"
#include "transport/qp.h"
#include "worker/worker.h"

#define SILENT_NS 1000000000LL /* from then on it is said who is waited for */

struct turn {
	ps_t acts; /* when what it says can reach its NIC */
	ps_t now;  /* what it shows */
};

static struct turn earlier(struct turn a, struct turn b)
{
	return (struct turn){a.acts < b.acts ? a.acts : b.acts, a.now < b.now ? a.now : b.now};
}

static struct turn turn_of_session(const struct worker *w)
{
	if (w->state == WORKER_RUNNING)
		return (struct turn){worker_acts(w), w->now};
	if (worker_holds(w))
		return (struct turn){worker_acts(w), w->now};
	if (w->state == WORKER_ABSENT && w->expected)
		return (struct turn){0, 0};
	return (struct turn){PS_NEVER, PS_NEVER};
}

/* Of a rank: of its worker and its programs */
static struct turn turn_of(const struct worker *w)
{
	struct turn t = turn_of_session(w);

	for (const struct worker *program = w->next; program; program = program->next)
		t = earlier(t, turn_of_session(program));
	return t;
}

static void take_earliest(struct fabric *f)
{
	f->clock.workers = f->turns[1].acts;
	f->clock.workers_now = f->turns[1].now;
}

/* clock_worker_changed() - A worker's state or time is another one: how far may the clock go now? */
void clock_worker_changed(struct fabric *f, const struct worker *w)
{
	size_t n = f->nic_count, k = n + w->rank;

	if (!f->turns) {
		clock_workers_changed(f);
		return;
	}
	if (f->clock.mode == CLOCK_REAL)
		return;
	f->turns[k] = turn_of(&f->workers[w->rank]);
	for (k /= 2; k; k /= 2)
		f->turns[k] = earlier(f->turns[2 * k], f->turns[2 * k + 1]);
	take_earliest(f);
}

/* clock_workers_changed() - The same after something that concerns all of them */
void clock_workers_changed(struct fabric *f)
{
	size_t n = f->nic_count;

	f->clock.workers = f->clock.workers_now = PS_NEVER;
	if (f->clock.mode == CLOCK_REAL || !n)
		return;
	if (!f->turns)
		f->turns = calloc(2 * n, sizeof *f->turns);
	if (!f->turns)
		abort();
	for (size_t i = 0; i < n; i++)
		f->turns[n + i] = turn_of(&f->workers[i]);
	for (size_t k = n - 1; k; k--)
		f->turns[k] = earlier(f->turns[2 * k], f->turns[2 * k + 1]);
	take_earliest(f);
}

/* Does the worker owe a message? */
static bool its_turn(const struct worker *w)
{
	return w->fd >= 0 && (w->state == WORKER_RUNNING || w->state == WORKER_ABSENT || worker_holds(w));
}

/* When any rank of its process has said something last */
static int64_t process_heard(const struct fabric *f, const struct worker *w)
{
	int64_t last = w->patience.heard_ns;

	for (uint32_t i = 0; i < f->nic_count && w->patience.pid; i++) {
		const struct worker *other = &f->workers[i];
		if (other->patience.pid == w->patience.pid && other->patience.heard_ns > last)
			last = other->patience.heard_ns;
	}
	return last;
}

/* worker_look_after() - Report workers that owe a message and hang */
void worker_look_after(struct fabric *f)
{
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct worker *w = &f->workers[i];
		char why[128];
		if (!its_turn(w) || w->hung || !patience_look(&w->patience, f->patience_ns, false, why, sizeof why))
			continue;
		int64_t heard = w->patience.heard_ns;
		worker_readable(f, w);
		if (!its_turn(w) || w->patience.heard_ns != heard)
			continue; /* the word was there */
		int64_t last = process_heard(f, w);
		if (last > heard) {
			patience_heard(&w->patience, last);
			continue;
		}
		w->hung = true;
		report_event(f, REPORT_WORKER_HUNG, json_pack("{s:i, s:s}", "rank", (int)w->rank, "reason", why));
	}
}

/* worker_waits_json() - Workers that have owed a message for a second or more, and ranks that have not connected */
json_t *worker_waits_json(const struct fabric *f)
{
	json_t *list = json_array();
	int64_t now = wall_ns();

	SESSIONS_EACH(f, w) {
		int64_t silent = now - w->patience.heard_ns;
		char state = w->patience.state;
		if (w->program && its_turn(w) && silent >= SILENT_NS)
			state = patience_state(&w->patience); /* what a program does nobody judges */
		if (w->fd < 0 && w->state == WORKER_ABSENT && w->expected)
			json_array_append_new(list, json_pack("{s:s, s:i}", "who", "absent", "rank", (int)w->rank));
		else if (its_turn(w) && silent >= SILENT_NS)
			json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:f, s:s%}", "who", "worker", "rank",
							      (int)w->rank, "pid", w->patience.pid, "silent_s",
							      (double)silent / 1e9, "state", &state, (size_t)1));
	}
	return list;
}

/* worker_waits_for() - In words, what a waiting worker lacks
 * Return: whether it lacks anything that others have to give
 */
bool worker_waits_for(const struct worker *w, char *text, size_t room)
{
	if (w->hosts) {
		snprintf(text, room, "programs that it has started to end");
		return true;
	}
	int n = snprintf(text, room, "%zu of %llu completions", w->records.count, (unsigned long long)w->wait_records);
	uint32_t connecting = 0, sending = 0, receiving = 0;

	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		const struct qp *q = w->nic->qps[i];
		if (q->state == QP_CONNECTING) {
			connecting++;
			snprintf(text + n, room - (size_t)n, "; rank %u to connect (tag %u)", q->connect_peer, q->connect_tag);
		} else if (q->state == QP_READY) {
			sending += q->sq.head != q->sq.tail;
			receiving += q->rq.head != q->rq.tail;
		}
	}
	if (!connecting && (size_t)n < room)
		snprintf(text + n, room - (size_t)n, "; %u queue pairs with requests to send, %u with receives posted%s",
			 sending, receiving, w->syncing ? "; other ranks to come to the barrier" : "");
	return connecting || w->syncing || w->records.count < w->wait_records;
}
