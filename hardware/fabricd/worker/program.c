/* Programs of a rank: sessions beside its worker's, as many as there are processes
 *
 * Theory of Operation
 *
 * A rank's worker has one session in a job, and what it leaves behind stays for its peers.  A program comes and goes
 * when it likes, as one that uses an RDMA NIC by its verbs does: several at a time, one after another.  When its session
 * ends, with BYE or because its process has, its queue pairs and its memory go as soon as that reaches the NIC.
 *
 * The clock counts a rank's programs like its worker: it goes no further than the earliest of those that run can act
 * (clock.c).  A rank that `start` names has come when any of them has.
 *
 * Programs that are started side by side say in which place each was: what is told apart by numbers, queue pairs, keys
 * and events of one time, then does not depend on which of them was faster.  Of those without a place it does.
 *
 * A session is known to be a program's by its HELLO.  A connection to a rank that has no session yet is its worker's until
 * then, and moves.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/close_later.h"
#include "base/units.h"
#include "engine/clock.h"
#include "connection/destroy.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "nic/nic.h"
#include "worker/shared.h"
#include "worker/worker.h"

/* session_next() - The one behind a session; NULL: the first, or there is no other */
struct worker *session_next(const struct fabric *f, const struct worker *w)
{
	if (!w)
		return f->nic_count ? f->workers : NULL;
	if (w->next)
		return w->next;
	return w->rank + 1 < f->nic_count ? &f->workers[w->rank + 1] : NULL;
}

/* program_new() - A session of a rank that may be a program's; NULL: there are PROGRAMS_MAX already */
struct worker *program_new(struct fabric *f, struct worker *rank)
{
	struct worker **at = &rank->next, *w;
	uint32_t count = 0;

	for (; *at; at = &(*at)->next)
		count++;
	w = count < PROGRAMS_MAX ? calloc(1, sizeof *w) : NULL;
	if (!w)
		return NULL;
	*w = (struct worker){.owner.ops = &program_qp_ops, .f = f, .nic = rank->nic, .rank = rank->rank, .program = ++rank->programs,
			     .listen_fd = -1, .fd = -1, .written = PS_NEVER};
	*at = w;
	f->programs++;
	return w;
}

/* program_begin() - The connection of a rank's worker has said that it is a program */
struct worker *program_begin(struct fabric *f, struct worker *rank)
{
	struct worker *w = program_new(f, rank);

	if (!w)
		return NULL;
	w->fd = rank->fd;
	w->patience = rank->patience;
	rank->fd = -1;
	watch_set(f, w->fd, WATCH_WORKER, w, EPOLLIN);
	return w;
}

#define PLACED_QP (QP_NUMBERS / 2) /* numbers of queue pairs of places begin there */
#define PLACE_QPS 4096u
#define PLACED (1u << 31) /* a program's number that says its place and how many have had it before */

/* program_placed() - It is the one that was started in that place, of those that were started together */
void program_placed(struct fabric *f, struct worker *w, uint32_t place)
{
	struct worker *rank = &f->workers[w->rank];

	if (!rank->places && !(rank->places = calloc(PLACES_MAX, sizeof *rank->places)))
		abort();
	w->place = place;
	w->program = PLACED | (rank->places[place].sessions++ & 0x7ffff) << 11 | place;
}

/* program_qp() - A new queue pair of a program, or NULL */
struct qp *program_qp(struct fabric *f, struct worker *w)
{
	if (!w->place)
		return qp_new(w->nic, &w->owner);
	struct place *its = &f->workers[w->rank].places[w->place];
	if (its->qps == PLACE_QPS)
		return NULL;
	struct qp *q = qp_numbered(w->nic, &w->owner, PLACED_QP + w->place * PLACE_QPS + its->qps);
	its->qps += q != NULL;
	return q;
}

/* program_interrupt() - A packet has come while it waits, of another thread: it waits no longer */
void program_interrupt(struct fabric *f, struct worker *w)
{
	w->wake_number++;
	w->wake_at = f->clock.now > w->now && !worker_holds(w) ? f->clock.now : w->now;
	worker_wake(f, w);
}

static bool of_program(struct event *e, void *program)
{
	if (event_kind(e) == EV_WAKE)
		return e->a == program;
	if (event_kind(e) != EV_DOORBELL || ((const struct post *)e->a)->w != program)
		return false;
	post_free(e->a);
	return true;
}

/* program_over() - Nothing is left of a program whose session has ended */
void program_over(struct fabric *f, struct worker *w)
{
	struct worker **at = &f->workers[w->rank].next;

	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		w->nic->qps[i]->gone = w->nic->qps[i]->owner == &w->owner;
	event_forget(f, of_program, w);
	qps_gone(f);
	qps_destroy(f, w->nic);
	shared_over(w);
	regions_unmap(w);
	records_free(&w->records);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	f->programs--;
	free(w->compute_free);
	w->compute_free = NULL;
	w->next = f->over;
	f->over = w;
}

/* programs_sweep() - Nobody is about to handle what was heard of those that are over */
void programs_sweep(struct fabric *f)
{
	while (f->over) {
		struct worker *w = f->over;
		f->over = w->next;
		free(w);
	}
}

/* programs_over() - Likewise of all of them, whatever is on its way to their NICs */
void programs_over(struct fabric *f)
{
	for (uint32_t i = 0; i < f->nic_count; i++)
		while (f->workers[i].next) {
			if (f->workers[i].next->fd >= 0)
				close_later(f->workers[i].next->fd);
			program_over(f, f->workers[i].next);
		}
}

/* program_ends() - What a program leaves behind goes when that reaches the NIC, after all that it has posted */
void program_ends(struct fabric *f, struct worker *w, bool greeted)
{
	ps_t t = worker_acts(w);

	if (!greeted) {
		program_over(f, w);
		return;
	}
	host_hears(f, w);
	worker_doorbell_at(f, &(struct post){.w = w, .kind = POST_KIND_END}, t > f->clock.now ? t : f->clock.now);
	report_event(f, REPORT_PROGRAM_ENDED,
		      json_pack("{s:i, s:i, s:s}", "rank", (int)w->rank, "pid", w->patience.pid, "reason", w->reason));
}
