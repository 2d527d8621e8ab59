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
 *
 * A program may wait like this, too: its process is in a call of the kernel, as for a child to end or for what comes by a
 * pipe.  Which process is to give it that is not known.  While another program of its rank is there that does not wait like
 * this, time is that one's; else the clock waits for it.
 */
#include "base/bytes.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/command.h"
#include "worker/worker.h"

static bool waits_outside(const struct worker *w)
{
	return w->hosts && w->state == WORKER_WAITING;
}

/* Of those that a session may have started */
static uint32_t programs_there(const struct worker *host)
{
	uint32_t count = 0;

	for (const struct worker *w = host->f->workers[host->rank].next; w; w = w->next)
		if (!host->program || (w != host && !waits_outside(w)))
			count += w->state == WORKER_RUNNING || w->state == WORKER_WAITING;
	return count;
}

/* worker_holds() - Does the clock wait for it, though it waits itself? */
bool worker_holds(const struct worker *w)
{
	return waits_outside(w) && w->f->clock.mode == CLOCK_VIRTUAL && programs_there(w) < w->started;
}

/* program_time() - When a program begins whose session is opened now */
ps_t program_time(const struct fabric *f, const struct worker *rank)
{
	for (const struct worker *w = rank; w; w = w->next)
		if (worker_holds(w) && worker_acts(w) >= f->clock.now)
			return w->now;
	return f->clock.now;
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

static bool rank_hosts(const struct worker *rank)
{
	for (const struct worker *w = rank; w; w = w->next)
		if (waits_outside(w))
			return true;
	return false;
}

/* host_listens() - A program of its rank connects, or one goes on that has waited for others: what those had said by then
 * comes first
 *
 * One may have ended before that, and the next one begins where it did.
 */
void host_listens(struct fabric *f, struct worker *rank)
{
	for (struct worker *p = rank_hosts(rank) ? rank->next : NULL, *next; p; p = next) {
		next = p->next;
		if (p->state == WORKER_RUNNING && p->fd >= 0)
			worker_readable(f, p);
	}
}

/* host_hears() - A program has ended: whoever of its rank may have started it is that far, too */
void host_hears(struct fabric *f, const struct worker *program)
{
	for (struct worker *w = &f->workers[program->rank]; w; w = w->next) {
		if (!waits_outside(w))
			continue;
		w->now = program->now > w->now ? program->now : w->now;
		patience_begin(&w->patience); /* its turn begins now */
		if (!w->program)
			look(f, w);
		clock_worker_changed(f, w);
	}
}

/* program_outside() - A program that waits does so for what is none of ours */
void program_outside(struct worker *w)
{
	w->hosts = true;
	w->started = 1;
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
