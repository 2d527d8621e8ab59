/* Groups of ranks whose collectives are offloaded
 *
 * Theory of Operation
 *
 * Every member calls with the same tag, kind, ranks and arguments.  When the last
 * has called, the kind may have to ask the controller (event `job`): it places
 * trees, installs flows and groups, programs accelerators over the control socket,
 * and answers with what it grants, or why not.  The clock stands still meanwhile;
 * what was granted holds `reaction` later, when all members are told.  A refusal is
 * told likewise: the workers then do it themselves.
 *
 * A job's number is given in emulated time, so it is the same in every run (calls
 * that come at one time are told apart by tag and first rank), and never again.
 *
 * Requests go by doorbell, as those of queue pairs do.  When a member's work cannot
 * be done any more (nothing answers), every member learns it by a record, once.
 *
 * A group ends when its last member has left it or is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/bytes.h"
#include "base/json.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "switch/switch.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/records.h"
#include "worker/services.h"
#include "worker/worker.h"

static const char no_answer[] = "the controller does not answer";

static bool same(const struct group *g, const struct group *o, const uint32_t *ranks)
{
	if (g->state != GROUP_GATHERING || g->ops != o->ops || g->tag != o->tag || g->count != o->count ||
	    memcmp(g->args, o->args, sizeof g->args))
		return false;
	for (uint32_t i = 0; i < g->count; i++)
		if (g->member[i].nic->rank != ranks[i])
			return false;
	return true;
}

static struct group *group_new(struct fabric *f, const struct group *like, const uint32_t *ranks)
{
	struct group *g = calloc(1, sizeof *g + like->count * sizeof(struct member)), **at = &f->groups;

	if (!g)
		abort();
	*g = *like;
	for (uint32_t i = 0; i < g->count; i++)
		g->member[i] = (struct member){.source.ops = g->ops->tx, .group = g, .nic = &f->nics[ranks[i]], .index = i};
	while (*at)
		at = &(*at)->next;
	*at = g;
	return g;
}

/* All members have called that ever will */
static void all_there(struct fabric *f, struct group *g)
{
	ps_t t = g->t > f->clock.now ? g->t : f->clock.now;

	g->state = GROUP_ASKING;
	event_add(f, t, EV_GROUP, 0, 0, 0, (uint64_t)g->tag << 16 | g->member[0].nic->rank, g, 0);
}

static void ended_already(struct group *g, const struct worker *w)
{
	snprintf(g->reason, sizeof g->reason, "rank %u has ended", w->rank);
}

/* offload_group() - A rank calls for a group
 * @asked:	Kind, tag, count and arguments; cookie of the caller
 * @ranks:	Its members
 *
 * Return: NULL, or what is wrong
 */
const char *offload_group(struct fabric *f, struct worker *w, const struct group_call *asked, const uint32_t *ranks)
{
	struct group like = {.tag = asked->tag, .count = asked->count}, *g = f->groups;
	struct member *m = NULL;
	uint32_t groups = 0;
	uint8_t named[NICS_MAX / 8] = {0};

	if (asked->kind >= OFFLOAD_KINDS || !f->offloads[asked->kind])
		return "GROUP: unknown kind";
	like.ops = f->offloads[asked->kind];
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
	const char *wrong = like.ops->check(f, &like);
	if (wrong)
		return wrong;
	for (; g && !same(g, &like, ranks); g = g->next)
		groups++;
	if (!g && groups >= GROUPS_MAX)
		return "GROUP: more than 4096";
	if (!g)
		g = group_new(f, &like, ranks);
	for (uint32_t i = 0; i < g->count; i++)
		if (g->member[i].nic == w->nic)
			m = &g->member[i];
	if (!m || m->called)
		return "GROUP: not a member, or twice with one tag";
	m->called = true;
	m->cookie = asked->cookie;
	w->connecting++;
	if (w->now > g->t)
		g->t = w->now;
	g->called++;
	for (uint32_t i = 0; i < g->count && !g->reason[0]; i++)
		if (g->member[i].nic->worker->state >= WORKER_DONE)
			ended_already(g, g->member[i].nic->worker);
	if (g->called == g->count || g->reason[0])
		all_there(f, g);
	return NULL;
}

static void open_later(struct fabric *f, struct group *g)
{
	g->state = GROUP_OPENING;
	event_add(f, f->clock.now + f->reaction, EV_GROUP_OPEN, 0, 0, 0, g->id, g, 0);
}

static json_t *job_json(const struct fabric *f, const struct group *g, const char *event)
{
	json_t *ranks = json_array(), *args = json_array(), *pools = json_object();

	for (uint32_t i = 0; i < g->count; i++)
		json_array_append_new(ranks, json_integer(g->member[i].nic->rank));
	for (int i = 0; i < GROUP_ARGS; i++)
		json_array_append_new(args, json_integer((json_int_t)g->args[i]));
	for (uint32_t i = 0; i < f->accelerator_count; i++)
		json_object_set_new(pools, f->accelerators[i].sw->n.name, accelerator_json(&f->accelerators[i]));
	return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o}", "event", event, "job", (int)g->id, "kind", g->ops->name,
			 "ranks", ranks, "args", args, "accelerators", pools, "time_ns", ns_json(f->clock.now));
}

/* Tell the controller, and stand still until it has answered
 * @why:	If nobody will answer: why
 *
 * Return: the event's id, 0 if nobody will answer
 */
static uint64_t tell(struct fabric *f, const struct group *g, const char *event, const char **why)
{
	uint64_t id = ++f->last_port_event;
	json_t *o = job_json(f, g, event);

	json_object_set_new(o, "id", json_integer((json_int_t)id));
	struct asked a = report_ask(f, "controller", id, o);
	*why = a.told ? no_answer : "there is no controller";
	return a.waits ? id : 0;
}

/* Give a group its number: from now on its members are found by that */
static void number(struct group *g, uint32_t id)
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

/* offload_ask() - All members of a group have called: give it its number, and ask the controller if it has to agree */
void offload_ask(struct fabric *f, struct group *g)
{
	number(g, ++f->last_job & PSN_MASK);
	if (g->ops->asks && !g->reason[0]) {
		const char *why;
		g->asked = tell(f, g, "job", &why);
		if (!g->asked)
			snprintf(g->reason, sizeof g->reason, "%s", why);
	}
	if (!g->asked)
		open_later(f, g);
}

/* offload_answered() - The controller has answered a `job` event
 * Return: NULL, or what is wrong with the answer
 */
const char *offload_answered(struct fabric *f, uint64_t event, const json_t *answer)
{
	struct group *g = f->groups;
	const char *reason = json_string_value(json_object_get(answer, "refused"));

	while (g && (g->state != GROUP_ASKING || g->asked != event))
		g = g->next;
	if (!g)
		return "settled: job: no job waits for that event";
	if (g->reason[0])
		accelerators_release(f, g->id);
	else if (reason)
		snprintf(g->reason, sizeof g->reason, "%s", reason);
	else
		g->granted = json_deep_copy(answer);
	open_later(f, g);
	return NULL;
}

/* offload_refuse() - What the controller has planned for a job cannot be */
void offload_refuse(struct fabric *f, uint32_t job, const char *why)
{
	for (struct group *g = f->groups; g; g = g->next)
		if (job && g->id == job && g->state == GROUP_ASKING)
			snprintf(g->reason, sizeof g->reason, "%s", why);
}

/* offload_jobs() - What a controller that has just come is told: the jobs that there are */
json_t *offload_jobs(struct fabric *f)
{
	json_t *events = json_array();

	for (struct group *g = f->groups; g; g = g->next) {
		if (!g->granted)
			continue;
		json_t *o = job_json(f, g, "job");
		json_object_set_new(o, "id", json_integer((json_int_t)++f->last_port_event));
		json_object_set(o, "granted", g->granted);
		json_array_append_new(events, o);
	}
	return events;
}

/* offload_unanswered() - Nobody will answer some events any more: what was asked by them is refused */
void offload_unanswered(struct fabric *f)
{
	for (struct group *g = f->groups; g; g = g->next)
		if (g->state == GROUP_ASKING && g->asked && !report_waits(f, g->asked)) {
			snprintf(g->reason, sizeof g->reason, "%s", no_answer);
			g->unanswered = true;
			open_later(f, g);
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
	json_t *said = g->granted ? json_copy(g->granted) : json_object();
	json_object_del(said, "parents"); /* as long as the list of ranks */
	json_object_del(said, "hops");
	json_object_update_new(said, json_pack("{s:i, s:s, s:i, s:s}", "job", (int)g->id, "kind", g->ops->name, "ranks",
					       (int)g->count, "refused", g->reason));
	report_event(f, "group", said);
	for (uint32_t i = 0; i < g->count; i++) {
		struct member *m = &g->member[i];
		if (m->left || !m->called)
			continue;
		m->nic->worker->connecting--;
		worker_record(f, m->nic->worker,
			      &(struct record){.kind = REC_GROUP,
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
	struct group **at = &f->groups;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
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
		tell(f, g, "job_closed", &why);
	}
	group_free(f, g);
}

/* offload_left() - A member is no longer there; with the last one the group ends */
void offload_left(struct fabric *f, struct member *m)
{
	m->group->left++;
	ended(f, m->group);
}

static void leave(struct fabric *f, struct worker *w, struct member *m)
{
	struct group *g = m->group;
	ps_t t = w->now > f->clock.now ? w->now : f->clock.now;

	m->left = true;
	event_add(f, t, EV_GROUP_LEFT, m->nic->n.index, 0, 0, g->id, m, 0);
}

static struct member *mine(struct group *g, const struct nic *n)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->member[i].nic == n)
			return &g->member[i];
	return NULL;
}

/* The NIC's part of a group that has a number, or NULL */
static struct member *numbered(const struct nic *n, uint32_t id)
{
	struct member *m = id ? n->member[id % MEMBER_BUCKETS] : NULL;

	while (m && m->group->id != id)
		m = m->next;
	return m;
}

/* offload_reason() - Why a group was refused, "" if it was not */
static const char *offload_reason(const struct nic *n, uint32_t id)
{
	const struct member *m = numbered(n, id);

	return m ? m->group->reason : "";
}

/* offload_member() - The NIC's part of an open group, or NULL */
struct member *offload_member(const struct nic *n, uint32_t id)
{
	struct member *m = numbered(n, id);

	return m && m->group->state == GROUP_OPEN ? m : NULL;
}

/* offload_leave() - A rank leaves a group
 * Return: NULL, or what is wrong
 */
static const char *offload_leave(struct fabric *f, struct worker *w, uint32_t id)
{
	struct member *m = numbered(w->nic, id);

	if (!m || m->left || (m->group->state != GROUP_OPEN && m->group->state != GROUP_REFUSED))
		return "LEAVE: no such group, or left already";
	leave(f, w, m);
	return NULL;
}

/* offload_lost() - A rank is gone: it leaves everything that it was a member of, and the others learn it */
static void offload_lost(struct fabric *f, struct worker *w)
{
	for (struct group *g = f->groups; g; g = g->next) {
		struct member *m = mine(g, w->nic);
		if (!m)
			continue;
		if (m->called && !m->left)
			leave(f, w, m);
		if (g->state == GROUP_GATHERING) {
			ended_already(g, w);
			all_there(f, g);
		} else if (g->state == GROUP_OPEN && w->state == WORKER_LOST) {
			char why[64];
			snprintf(why, sizeof why, "rank %u has ended", w->rank);
			offload_failed(f, m, why);
		}
	}
}

/* offload_check() - Return: NULL, or what is wrong with a request to a group */
static const char *offload_check(const struct worker *w, uint32_t id, const struct offload_wr *wr)
{
	struct member *m = offload_member(w->nic, id);

	if (!m || m->left)
		return "POST_OFFLOAD: no such group, or not open";
	return m->group->ops->check_wr(m, wr);
}

/* offload_post() - A request has reached the NIC */
static void offload_post(struct fabric *f, struct worker *w, uint32_t id, const struct offload_wr *wr)
{
	struct member *m = offload_member(w->nic, id);

	if (m && !m->left)
		m->group->ops->post(f, m, wr);
}

/* offload_receive() - A packet of an offload has come in at a NIC
 * Return: false if it is for nobody here
 */
bool offload_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr)
{
	struct member *m = offload_member(n, pkt->dst_qp);

	return m && !m->left && m->group->ops->receive(f, m, pkt, fr);
}

/* offload_later() - A member sets something for itself
 * @what:	Tells it apart from everything else that the NIC has set for the same time
 */
void offload_later(struct fabric *f, struct member *m, ps_t t, uint64_t what)
{
	event_add(f, t, EV_OFFLOAD, m->nic->n.index, 0, m->group->id & 0xffff, what, m->nic, m->group->id);
}

/* offload_due() - Has what a NIC's part of a group has set for itself still to happen? */
bool offload_due(const struct nic *n, uint64_t id, uint64_t what)
{
	const struct member *m = offload_member(n, (uint32_t)id);

	return m && m->group->ops->due(m, what);
}

/* offload_event() - Its time has come */
void offload_event(struct fabric *f, struct nic *n, uint64_t id, ps_t t, uint64_t what)
{
	struct member *m = offload_member(n, (uint32_t)id);

	m->group->ops->event(f, m, t, what);
}

/* offload_done() - A request has ended
 * @t:		When the worker can see it
 */
void offload_done(struct fabric *f, struct member *m, uint64_t wr_id, enum wc_status status, uint64_t bytes, ps_t t)
{
	worker_record(f, m->nic->worker,
		      &(struct record){.kind = REC_OFFLOADED,
				       .status = status,
				       .wr_id = wr_id,
				       .t = t,
				       .qp = m->group->id,
				       .bytes = bytes});
}

/* The switch that has dropped, for want of a rule, a frame of the job last, or NULL */
static const char *dropped_at(const struct fabric *f, const struct group *g)
{
	for (uint32_t i = 0; i < f->switch_count; i++)
		for (uint16_t k = 0; k < f->switches[i].n.port_count; k++) {
			const struct dropped *d = f->switches[i].n.ports[k].last_drop[DROP_FORWARDING];
			struct view v = view_of(d ? d->data : NULL, d ? DROPPED_BYTES : 0);
			view_take(&v, ETH_BYTES + IPV4_BYTES + UDP_BYTES);
			uint8_t opcode = get_u8(&v);
			view_take(&v, 3);
			if ((get_be32(&v) & PSN_MASK) == g->id && !v.bad && roce_is_offload(opcode))
				return f->switches[i].n.name;
		}
	return NULL;
}

/* offload_failed() - A member's work cannot be done: all members are told
 * @why:	What the member has seen
 */
void offload_failed(struct fabric *f, struct member *m, const char *why)
{
	struct group *g = m->group;
	const char *at = dropped_at(f, g);

	if (m->failed)
		return;
	snprintf(g->reason, sizeof g->reason, "%s%s%.48s", why, at ? "; no rule sends its frames on at " : "", at ? at : "");
	report_event(f, "group_failed",
		      json_pack("{s:i, s:s, s:i, s:s}", "job", (int)g->id, "kind", g->ops->name, "rank", (int)m->nic->rank,
				"reason", g->reason));
	for (uint32_t i = 0; i < g->count; i++) {
		struct member *o = &g->member[i];
		if (!o->failed && !o->left)
			worker_record(f, o->nic->worker,
				      &(struct record){.kind = REC_GROUP_FAILED,
						       .wr_id = m->nic->rank,
						       .t = f->clock.now,
						       .qp = g->id});
		o->failed = true;
	}
}

void offload_free(struct fabric *f)
{
	while (f->groups)
		group_free(f, f->groups);
}

const struct worker_services offload_services = {
	.group = offload_group,
	.leave = offload_leave,
	.check = offload_check,
	.post = offload_post,
	.ended = offload_lost,
	.reason = offload_reason,
};
