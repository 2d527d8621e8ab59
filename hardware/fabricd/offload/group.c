/* Groups of ranks whose collectives are offloaded
 *
 * Theory of Operation
 *
 * Every member calls with the same tag, kind, ranks and arguments.  When the last
 * has called, some kinds ask the controller (job.c).  The clock stands still until it
 * has answered.  All members are told `reaction` later, when what was granted is in
 * force.  They are also told of a refusal: then the workers do the collective
 * themselves.
 *
 * A job's number is given in emulated time, so it is the same in every run (calls
 * that come at one time are told apart by tag and first rank), and never again.
 *
 * While a worker runs, the clock may go on until its next post would reach the NIC.
 * So a call, or that a member leaves, acts no earlier than a post would; `reaction`
 * counts from the call.
 *
 * Requests go by doorbell, as those of queue pairs do.  When a member's work cannot
 * be done any more (nothing answers), every member is told by a record, once.
 *
 * A group that gathers is found by a hash of what its members call it by: there may be
 * thousands.
 *
 * A group ends when its last member has left it or is lost.
 *
 * What a lost member has said of its own time says nothing any more: it may have been ten
 * days ahead.  So it leaves now, and its call dates nothing; neither does that of one that
 * has ended well with the real clock, which nobody can let go on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/registry.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "records/records.h"
#include "worker/services.h"
#include "worker/worker.h"

#define GATHERING_BITS 12

static uint32_t hash_of(const struct group *like, const uint32_t *ranks)
{
	uint32_t hash = like->tag * 2654435769u ^ like->count;

	for (uint32_t i = 0; i < like->count; i++)
		hash = (hash ^ ranks[i]) * 2654435769u;
	return hash >> (32 - GATHERING_BITS);
}

static struct group **gathering(struct fabric *f, uint32_t hash)
{
	if (!f->gathering && !(f->gathering = calloc(1u << GATHERING_BITS, sizeof(struct group *))))
		abort();
	return &f->gathering[hash];
}

/* It gathers no longer: who calls for the same from now on calls for another group */
static void gathered(struct fabric *f, struct group *g)
{
	struct group **at = gathering(f, g->hash);

	while (*at != g)
		at = &(*at)->same_hash;
	*at = g->same_hash;
}

static bool same(const struct group *g, const struct group *o, const uint32_t *ranks)
{
	if (g->ops != o->ops || g->tag != o->tag || g->count != o->count ||
	    memcmp(g->args, o->args, sizeof g->args))
		return false;
	for (uint32_t i = 0; i < g->count; i++)
		if (g->member[i].nic->rank != ranks[i])
			return false;
	return true;
}

static struct group *group_new(struct fabric *f, const struct group *like, const uint32_t *ranks)
{
	struct group *g = calloc(1, sizeof *g + like->count * sizeof(struct member));

	if (!g)
		abort();
	*g = *like;
	for (uint32_t i = 0; i < g->count; i++)
		g->member[i] = (struct member){.source.ops = g->ops->tx, .group = g, .nic = &f->nics[ranks[i]], .index = i};
	g->previous = f->last_group;
	if (f->last_group)
		f->last_group->next = g;
	else
		f->groups = g;
	f->last_group = g;
	f->group_count++;
	struct group **at = gathering(f, g->hash);
	g->same_hash = *at;
	return *at = g;
}

static bool dates_nothing(const struct fabric *f, const struct worker *w)
{
	return w->state == WORKER_LOST || (w->state == WORKER_DONE && f->clock.mode == CLOCK_REAL);
}

/* When the last of the members' calls acts, or with @shown came, by their own clocks */
static ps_t last_call(const struct fabric *f, const struct group *g, bool shown)
{
	ps_t last = 0;

	for (uint32_t i = 0; i < g->count; i++) {
		const struct member *m = &g->member[i];
		ps_t t = shown ? m->t : m->acts;
		if (t > last && !dates_nothing(f, m->nic->worker))
			last = t;
	}
	return last;
}

static ps_t not_before_now(const struct fabric *f, ps_t t)
{
	return t > f->clock.now ? t : f->clock.now;
}

/* All members have called that ever will */
static void all_there(struct fabric *f, struct group *g)
{
	ps_t t = not_before_now(f, last_call(f, g, false));

	gathered(f, g);
	g->state = GROUP_ASKING;
	event_add(f, t, EV_GROUP, 0, 0, 0, (uint64_t)g->tag << 16 | g->member[0].nic->rank, g, 0);
}

static void ended_already(struct group *g, const struct worker *w)
{
	snprintf(g->reason, sizeof g->reason, "rank %u has ended", w->rank);
}

static const struct offload_ops *kind_named(const char *name)
{
	REGISTRY_EACH(struct offload_ops, offload_kinds, kind)
		if (!strcmp((*kind)->name, name))
			return *kind;
	return NULL;
}

/* offload_group() - A rank calls for a group
 * @asked:	Kind, tag, count and arguments; cookie of the caller
 * @ranks:	Its members
 *
 * Return: NULL, or what is wrong
 */
const char *offload_group(struct fabric *f, struct worker *w, const struct group_call *asked, const uint32_t *ranks)
{
	struct group like = {.tag = asked->tag, .count = asked->count};
	uint32_t self = w->nic->rank;
	uint8_t named[NICS_MAX / 8] = {0};

	if (!(like.ops = kind_named(asked->kind)))
		return "GROUP: unknown kind";
	memcpy(like.args, asked->args, sizeof like.args);
	if (like.count < 2 || like.count > GROUP_MEMBERS_MAX)
		return "GROUP: from 2 to 4096 members";
	for (uint32_t i = 0; i < like.count; i++) {
		if (ranks[i] >= f->nic_count)
			return "GROUP: no such rank";
		if (named[ranks[i] / 8] & 1u << (ranks[i] & 7))
			return "GROUP: a rank twice";
		named[ranks[i] / 8] |= (uint8_t)(1u << (ranks[i] & 7));
	}
	/* before there is a group: none is made for others */
	if (!(named[self / 8] & 1u << (self & 7)))
		return "GROUP: not a member";
	const char *wrong = like.ops->check(f, &like);
	if (wrong)
		return wrong;
	like.hash = hash_of(&like, ranks);
	struct group *g = *gathering(f, like.hash);
	while (g && !same(g, &like, ranks))
		g = g->same_hash;
	if (!g && f->group_count >= GROUPS_MAX)
		return "GROUP: more than 4096";
	if (!g)
		g = group_new(f, &like, ranks);
	struct member *m = g->member;
	while (m->nic != w->nic)
		m++;
	if (m->called)
		return "GROUP: twice with one tag";
	m->called = true;
	m->cookie = asked->cookie;
	w->connecting++;
	m->t = w->now;
	m->acts = worker_acts(w);
	g->called++;
	for (uint32_t i = 0; i < g->count && !g->reason[0]; i++)
		if (g->member[i].nic->worker->state >= WORKER_DONE)
			ended_already(g, g->member[i].nic->worker);
	if (g->called == g->count || g->reason[0])
		all_there(f, g);
	return NULL;
}

void group_open_later(struct fabric *f, struct group *g)
{
	g->state = GROUP_OPENING;
	event_add(f, not_before_now(f, last_call(f, g, true) + f->reaction), EV_GROUP_OPEN, 0, 0, 0, g->id, g, 0);
}

/* Give a group its number: from now on its members are found by that */
void group_number(struct group *g, uint32_t id)
{
	g->id = id;
	for (uint32_t i = 0; i < g->count; i++) {
		struct member **at = &g->member[i].nic->member[id % MEMBER_BUCKETS];
		g->member[i].next = *at;
		*at = &g->member[i];
	}
}

static void forget_number(struct group *g)
{
	for (uint32_t i = 0; i < g->count && g->id; i++) {
		struct member **at = &g->member[i].nic->member[g->id % MEMBER_BUCKETS];
		while (*at != &g->member[i])
			at = &(*at)->next;
		*at = g->member[i].next;
	}
}

static void ended(struct fabric *f, struct group *g);

/* offload_open() - Tell the members that their group is open, or was refused */
void offload_open(struct fabric *f, struct group *g)
{
	const char *wrong = g->reason[0] ? g->reason : g->ops->open(f, g);

	if (wrong && wrong != g->reason)
		snprintf(g->reason, sizeof g->reason, "%s", wrong);
	g->state = wrong ? GROUP_REFUSED : GROUP_OPEN;
	json_t *event = g->granted ? json_copy(g->granted) : json_object();
	json_object_del(event, "parents"); /* as long as the list of ranks */
	json_object_del(event, "hops");
	json_object_update_new(event, json_pack("{s:i, s:s, s:i, s:s}", "job", (int)g->id, "kind", g->ops->name, "ranks",
					       (int)g->count, "refused", g->reason));
	report_event(f, REPORT_GROUP, event);
	for (uint32_t i = 0; i < g->count; i++) {
		struct member *m = &g->member[i];
		if (m->leaving || !m->called)
			continue;
		m->nic->worker->connecting--;
		worker_record(f, m->nic->worker,
			      &(struct record){.kind = REC_GROUPED,
					       .wr_id = m->cookie,
					       .t = f->clock.now,
					       .qp = g->id,
					       .imm = (uint32_t)json_integer_value(group_granted(g, "slots"))});
	}
	ended(f, g);
}

static bool busy(const struct group *g)
{
	return g->state == GROUP_ASKING || g->state == GROUP_OPENING;
}

static void group_free(struct fabric *f, struct group *g)
{
	if (g->state == GROUP_GATHERING)
		gathered(f, g);
	*(g->previous ? &g->previous->next : &f->groups) = g->next;
	*(g->next ? &g->next->previous : &f->last_group) = g->previous;
	f->group_count--;
	for (uint32_t i = 0; i < g->count && g->ops->tx; i++)
		for (int k = 0; k < 2; k++)
			nic_tx_forget(&g->member[i].nic->tx[k], &g->member[i].source);
	if (g->state == GROUP_OPEN)
		g->ops->close(f, g);
	forget_number(g);
	json_decref(g->granted);
	free(g);
}

static void ended(struct fabric *f, struct group *g)
{
	if (g->left < g->called || busy(g) || (g->state == GROUP_GATHERING && g->called))
		return;
	if (g->asked && (g->granted || g->unanswered)) { /* it may have been programmed by one that did not say so */
		const char *why;
		accelerators_release(f, g->id);
		job_tell(f, g, REPORT_JOB_CLOSED, &why);
	}
	group_free(f, g);
}

/* offload_left() - A member is no longer there; with the last one the group ends */
void offload_left(struct fabric *f, struct member *m)
{
	m->left = true;
	m->group->left++;
	ended(f, m->group);
}

void group_leave(struct fabric *f, struct worker *w, struct member *m)
{
	struct group *g = m->group;
	ps_t t = dates_nothing(f, w) ? f->clock.now : not_before_now(f, worker_acts(w));

	m->leaving = true;
	event_add(f, t, EV_GROUP_LEFT, m->nic->n.index, 0, 0, g->id, m, 0);
}

static struct member *mine(struct group *g, const struct nic *n)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->member[i].nic == n)
			return &g->member[i];
	return NULL;
}

struct ending {
	const struct fabric *f;
	const struct worker *w;
};

/* What has a date by the clock of a worker that dates nothing any more happens earlier */
static bool dated_anew(struct event *e, void *context)
{
	const struct ending *ending = context;
	const struct fabric *f = ending->f;
	ps_t t = e->t;

	if (event_kind(e) == EV_GROUP_LEFT && ((const struct member *)e->a)->nic->worker == ending->w)
		t = f->clock.now;
	else if (event_kind(e) == EV_GROUP)
		t = not_before_now(f, last_call(f, e->a, false));
	else if (event_kind(e) == EV_GROUP_OPEN)
		t = not_before_now(f, last_call(f, e->a, true) + f->reaction);
	if (t < e->t)
		e->t = t;
	return false;
}

/* group_worker_ended() - A rank is gone: it leaves everything that it was a member of, and the others learn it */
void group_worker_ended(struct fabric *f, struct worker *w)
{
	bool ahead = false;

	for (struct group *g = f->groups; g; g = g->next) {
		struct member *m = mine(g, w->nic);
		if (!m)
			continue;
		if (m->called && !m->leaving)
			group_leave(f, w, m);
		m->left |= w->state == WORKER_LOST; /* its memory has gone with it */
		if (g->state == GROUP_GATHERING) {
			ended_already(g, w);
			all_there(f, g);
		} else if (g->state == GROUP_OPEN && w->state == WORKER_LOST) {
			char why[64];
			snprintf(why, sizeof why, "rank %u has ended", w->rank);
			offload_failed(f, m, why);
		}
		ahead = ahead || (m->called && worker_acts(w) > f->clock.now && dates_nothing(f, w));
	}
	if (ahead)
		event_forget(f, dated_anew, &(struct ending){f, w});
}

void offload_free(struct fabric *f)
{
	while (f->groups)
		group_free(f, f->groups);
	free(f->gathering);
	f->gathering = NULL;
}
