/* A worker that has started programs in its container, and waits until they have ended
 *
 * Theory of Operation
 *
 * Nobody at fabricd sees a process that has not opened its NIC yet, or has left it and goes on.  So the worker says how
 * many of those that it has started have not ended.  While fewer programs of its rank have a session, one of them is
 * between two, and the clock waits for the worker, at the time at which the last one ended: what a program does without
 * a session takes no emulated time, and its next session begins where the one before has ended, however long that took.
 *
 * The worker learns from the kernel that a process has ended, and says so in a further packet, which ends its wait.
 */
#include "base/bytes.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/command.h"
#include "worker/worker.h"

static uint32_t programs_there(const struct worker *rank)
{
	uint32_t count = 0;

	for (const struct worker *w = rank->next; w; w = w->next)
		count += w->state == WORKER_RUNNING || w->state == WORKER_WAITING;
	return count;
}

/* worker_holds() - Does the clock wait for it, though it waits itself? */
bool worker_holds(const struct worker *w)
{
	return w->hosts && w->state == WORKER_WAITING && w->f->clock.mode == CLOCK_VIRTUAL && programs_there(w) < w->started;
}

/* program_time() - When a program begins whose session is opened now */
ps_t program_time(const struct fabric *f, const struct worker *rank)
{
	bool held = worker_holds(rank) && worker_acts(rank) >= f->clock.now;

	return held ? rank->now : f->clock.now;
}

/* worker_interrupt() - It waits no longer */
void worker_interrupt(struct fabric *f, struct worker *w)
{
	w->wake_number++;
	w->wake_at = w->now;
	worker_wake(f, w);
}

static void look(struct fabric *f, struct worker *w)
{
	if (w->state == WORKER_WAITING && w->hosts && !w->started && !programs_there(w))
		worker_interrupt(f, w);
}

/* host_listens() - A program of its rank connects: what others of them had said by then comes first
 *
 * One may have ended before that, and the next one begins where it did.
 */
void host_listens(struct fabric *f, struct worker *w)
{
	for (struct worker *p = w->hosts ? w->next : NULL, *next; p; p = next) {
		next = p->next;
		if (p->state == WORKER_RUNNING && p->fd >= 0)
			worker_readable(f, p);
	}
}

/* host_hears() - A program has ended: if the rank's worker has started it, it is that far, too */
void host_hears(struct fabric *f, const struct worker *program)
{
	struct worker *w = &f->workers[program->rank];

	if (!w->hosts || w->state != WORKER_WAITING)
		return;
	w->now = program->now > w->now ? program->now : w->now;
	patience_begin(&w->patience); /* its turn begins now */
	look(f, w);
	clock_worker_changed(f, w);
}

/* worker_awaits() - A worker waits for @programs processes, at most @until */
void worker_awaits(struct fabric *f, struct worker *w, uint32_t programs, ps_t until)
{
	worker_wait(f, w, 1, until, false);
	w->hosts = true;
	w->started = programs;
	look(f, w);
}

const char *command_await_programs(struct message *m)
{
	uint32_t programs = get_le32(&m->v);

	get_le32(&m->v);
	uint64_t until = get_le64(&m->v);
	if (!m->last)
		return "AWAIT_PROGRAMS: must be the last command of a packet";
	if (until != UINT64_MAX && until > DURATION_MAX)
		return "AWAIT_PROGRAMS: beyond thirteen days of emulated time, where the clock ends";
	worker_awaits(m->f, m->w, programs, until == UINT64_MAX ? PS_NEVER : (ps_t)until);
	return NULL;
}
