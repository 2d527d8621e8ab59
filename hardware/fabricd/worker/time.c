/* Commands of workers: computing, waiting for records and for each other, groups of offloads. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "records/foreseen.h"
#include "records/records.h"
#include "worker/command.h"
#include "worker/services.h"
#include "worker/worker.h"

#define WAIT_WRITTEN 1u
#define WAIT_OUTSIDE 2u
#define WAIT_FORESEEN 4u
#define TO_BE_TOLD 1u /* of FORESEE */

/* What takes that long on a host, on this one */
static ps_t slowed(const struct worker *w, uint64_t duration)
{
	return w->nic->p.slow == 1 ? (ps_t)duration : (ps_t)((double)duration * w->nic->p.slow + 0.5);
}

/* The worker does something itself that takes so long */
void worker_busy(struct worker *w, uint64_t duration)
{
	ps_t took = slowed(w, duration);

	w->now += took;
	w->host += took;
}

const char *command_compute(struct message *m)
{
	struct worker *w = m->w;
	uint64_t wr_id = get_le64(&m->v), duration = get_le64(&m->v);
	uint32_t stream = get_le32(&m->v);

	if (stream >= STREAMS_MAX && stream != NO_STREAM)
		return "COMPUTE: more than 256 streams";
	if (!w->compute_free && !(w->compute_free = calloc(STREAMS_MAX, sizeof(ps_t))))
		abort();
	ps_t alone = w->now, *free_at = stream == NO_STREAM ? &alone : &w->compute_free[stream];
	ps_t start = *free_at > w->now ? *free_at : w->now;
	if (duration > DURATION_MAX || start > (ps_t)DURATION_MAX)
		return "COMPUTE: beyond thirteen days of emulated time, where the clock ends";
	*free_at = start + slowed(w, duration);
	worker_record(m->f, w, &(struct record){.kind = REC_COMPUTED, .wr_id = wr_id, .t = *free_at});
	return NULL;
}

const char *command_spend(struct message *m)
{
	uint64_t duration = get_le64(&m->v);

	if (duration > DURATION_MAX || m->w->now > (ps_t)DURATION_MAX)
		return "SPEND: beyond thirteen days of emulated time, where the clock ends";
	worker_busy(m->w, duration);
	return NULL;
}

const char *command_wait(struct message *m)
{
	uint32_t records = get_le32(&m->v), flags = get_le32(&m->v);

	if (flags & ~(m->w->program ? WAIT_WRITTEN | WAIT_OUTSIDE : WAIT_FORESEEN))
		return "WAIT: unknown flag";
	uint64_t until = get_le64(&m->v);
	if (!m->last)
		return "WAIT: must be the last command of a packet";
	if (until != UINT64_MAX && until > DURATION_MAX)
		return "WAIT: beyond thirteen days of emulated time, where the clock ends";
	worker_wait(m->f, m->w, records, until == UINT64_MAX ? PS_NEVER : (ps_t)until, flags & WAIT_WRITTEN);
	m->w->wait_foreseen = flags & WAIT_FORESEEN;
	if (flags & WAIT_OUTSIDE)
		program_outside(m->w);
	return NULL;
}

/* May it be answered with that?  Nothing that looks at its own clock, or waits for anybody */
static bool may_be_said(struct view v)
{
	while (v.left) {
		uint16_t op = get_le16(&v), length = get_le16(&v);
		get_le32(&v);
		if ((op != SPEND && op != POST_SEND) || length < 8 || !view_take(&v, length - 8u))
			return false;
	}
	return true;
}

const char *command_foresee(struct message *m)
{
	struct foreseen what = {.chain = get_le32(&m->v)};

	what.kind = get_le16(&m->v);
	uint16_t flags = get_le16(&m->v);
	what.told = flags == TO_BE_TOLD;
	what.key = get_le64(&m->v);
	what.bytes = (uint32_t)m->v.left;
	if (m->f->clock.mode == CLOCK_REAL)
		return "FORESEE: on the real clock a worker answers by itself";
	if (what.chain >= CHAINS_MAX || (what.kind != REC_COMPUTED && what.kind != REC_RECEIVED_IMM) || flags > TO_BE_TOLD)
		return "FORESEE: unknown chain, kind or flag";
	if ((flags && what.bytes) || !may_be_said(m->v))
		return "FORESEE: an answer of other commands than SPEND and POST_SEND";
	if (!foreseen_add(&m->w->foresight, &what, view_take(&m->v, what.bytes)))
		return "FORESEE: more than 16384 records, or one twice";
	return NULL;
}

/* worker_answers() - A wait is over, and its worker's own clock is at that time: does one record end it to which is known what
 * the worker says?
 *
 * Return: whether it is so; then that is said, and the worker waits on
 */
bool worker_answers(struct fabric *f, struct worker *w)
{
	if (!w->foresight || !w->wait_foreseen || w->wait_records != 1 || w->now >= w->wait_until || w->syncing || w->connecting ||
	    w->fd < 0 || records_due(&w->records, w->now) != 1)
		return false;
	struct foreseen *x = foreseen_answer(w->foresight, records_nth(&w->records, 0));
	if (!x)
		return false;
	records_drop(&w->records, 1);
	w->state = WORKER_RUNNING;
	const char *wrong = worker_says(f, w, x->said, x->bytes);
	free(x);
	if (wrong)
		worker_end(f, w, WORKER_LOST, wrong);
	else
		worker_wait(f, w, 1, w->wait_until, false);
	w->wait_foreseen = true;
	return true;
}

const char *command_sync(struct message *m)
{
	uint32_t tag = get_le32(&m->v), participants = get_le32(&m->v);

	if (participants == 0 || participants > m->f->nic_count)
		return "SYNC: participants 0, or more than there are ranks";
	worker_sync(m->f, m->w, tag, participants);
	return NULL;
}

const char *command_progress(struct message *m)
{
	(void)m;
	return NULL;
}

const char *command_group(struct message *m)
{
	const uint8_t *kind = view_take(&m->v, GROUP_KIND_BYTES);
	uint32_t tag = get_le32(&m->v), cookie = get_le32(&m->v), count = get_le32(&m->v);
	struct group_call asked = {.tag = tag, .count = count, .cookie = cookie};
	static uint32_t ranks[GROUP_MEMBERS_MAX];

	if (kind) /* its length was checked */
		memcpy(asked.kind, kind, GROUP_KIND_BYTES);
	get_le32(&m->v);
	for (int i = 0; i < GROUP_ARGS; i++)
		asked.args[i] = get_le64(&m->v);
	if (count > GROUP_MEMBERS_MAX || m->v.left != (size_t)(count + (count & 1)) * 4)
		return "GROUP: not of the length that its members take";
	for (uint32_t i = 0; i < count; i++)
		ranks[i] = get_le32(&m->v);
	return m->f->services->group(m->f, m->w, &asked, ranks);
}

const char *command_leave(struct message *m)
{
	uint32_t id = get_le32(&m->v);

	get_le32(&m->v);
	return m->f->services->leave(m->f, m->w, id);
}
