/* Commands of workers: computing, waiting for records and for each other, groups of offloads. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "records/records.h"
#include "worker/command.h"
#include "worker/services.h"
#include "worker/worker.h"

#define WAIT_WRITTEN 1u
#define WAIT_OUTSIDE 2u

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

	if (flags & ~(m->w->program ? WAIT_WRITTEN | WAIT_OUTSIDE : 0))
		return "WAIT: unknown flag";
	uint64_t until = get_le64(&m->v);
	if (!m->last)
		return "WAIT: must be the last command of a packet";
	if (until != UINT64_MAX && until > DURATION_MAX)
		return "WAIT: beyond thirteen days of emulated time, where the clock ends";
	worker_wait(m->f, m->w, records, until == UINT64_MAX ? PS_NEVER : (ps_t)until, flags & WAIT_WRITTEN);
	if (flags & WAIT_OUTSIDE)
		program_outside(m->w);
	return NULL;
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
