/* Members of a group: found by its number, sending, receiving, done, failed. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "records/records.h"
#include "switch/switch.h"
#include "transport/qp.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"
#include "worker/services.h"
#include "worker/worker.h"

/* The NIC's part of a group that has a number, or NULL */
static struct member *numbered(const struct nic *n, uint32_t id)
{
	struct member *m = id ? n->member[id % MEMBER_BUCKETS] : NULL;

	while (m && m->group->id != id)
		m = m->next;
	return m;
}

/* Why a group was refused, has failed or goes another way, "" if it has not */
static const char *reason(const struct nic *n, uint32_t id)
{
	const struct member *m = numbered(n, id);

	return !m ? "" : m->group->reason[0] ? m->group->reason : m->group->note;
}

/* offload_member() - The NIC's part of an open group, or NULL */
struct member *offload_member(const struct nic *n, uint32_t id)
{
	struct member *m = numbered(n, id);

	return m && m->group->state == GROUP_OPEN ? m : NULL;
}

/* A rank leaves a group
 * Return: NULL, or what is wrong
 */
static const char *leave(struct fabric *f, struct worker *w, uint32_t id)
{
	struct member *m = numbered(w->nic, id);

	if (!m || m->leaving || (m->group->state != GROUP_OPEN && m->group->state != GROUP_REFUSED))
		return "LEAVE: no such group, or left already";
	group_leave(f, w, m);
	return NULL;
}

/* Return: NULL, or what is wrong with a request to a group */
static const char *check(const struct worker *w, uint32_t id, const struct offload_wr *wr)
{
	struct member *m = offload_member(w->nic, id);

	if (!m || m->leaving)
		return "POST_OFFLOAD: no such group, or not open";
	return m->group->ops->check_wr(m, wr);
}

/* A request has reached the NIC */
static void post(struct fabric *f, struct worker *w, uint32_t id, const struct offload_wr *wr)
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

/* offload_domain() - A frame of an offload is at the switch of a scale-up domain; its packet says from which rank
 * Return: false if it is for nobody here
 */
bool offload_domain(struct fabric *f, struct scale_up *s, struct frame *fr)
{
	struct roce_packet pkt;

	if (frame_parse(fr, &pkt) != ROCE_OK || !roce_is_offload(pkt.opcode) || pkt.offload.more >= f->nic_count)
		return false;
	const struct nic *from = &f->nics[pkt.offload.more];
	struct member *m = from->scale_up == s ? offload_member(from, pkt.dst_qp) : NULL;
	return m && m->group->ops->domain && m->group->ops->domain(f, m, &pkt, fr);
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

/* Has the port dropped a frame of the job last, for that reason? */
static bool dropped(const struct port *p, enum drop why, const struct group *g)
{
	const struct dropped *d = p->last_drop[why];
	struct view v = view_of(d ? d->data : NULL, d ? DROPPED_BYTES : 0);

	view_take(&v, ETH_BYTES + IPV4_BYTES + UDP_BYTES);
	uint8_t opcode = get_u8(&v);
	view_take(&v, 3);
	return (get_be32(&v) & PSN_MASK) == g->id && !v.bad && roce_is_offload(opcode);
}

static bool in_tree(const struct group *g, const struct sw *s)
{
	const json_t *name;
	size_t i;

	json_array_foreach(group_granted(g, "tree"), i, name)
		if (!strcmp(json_string_value(name) ? json_string_value(name) : "", s->n.name))
			return true;
	return false;
}

/* offload_culprit() - In words, what the job's frames do not get past: a dead accelerator, no rule, a dead cable
 * Return: "" if none of these
 */
const char *offload_culprit(const struct fabric *f, const struct group *g, char *text, size_t room)
{
	for (uint32_t i = 0; i < f->switch_count; i++)
		if (f->switches[i].p.accelerator_down && in_tree(g, &f->switches[i])) {
			snprintf(text, room, "%.48s's accelerator is down", f->switches[i].n.name);
			return text;
		}
	for (uint32_t i = 0; i < f->switch_count; i++)
		for (uint16_t k = 0; k < f->switches[i].n.port_count; k++) {
			const struct port *p = &f->switches[i].n.ports[k];
			if (dropped(p, DROP_FORWARDING, g)) {
				snprintf(text, room, "no rule sends its frames on at %.48s", f->switches[i].n.name);
				return text;
			}
			if (p->cable && !p->cable->p.up && dropped(p, DROP_CABLE, g)) {
				snprintf(text, room, "its frames end at %.80s, which is down", p->cable->name);
				return text;
			}
		}
	return "";
}

static void tell(struct fabric *f, struct member *m, enum record_kind kind, uint32_t rank)
{
	worker_record(f, m->nic->worker, &(struct record){.kind = kind, .wr_id = rank, .t = f->clock.now, .qp = m->group->id});
}

/* offload_noted() - The group's requests are done another way from now on (@why: "": as asked for again): all are told */
void offload_noted(struct fabric *f, struct group *g, const char *why)
{
	snprintf(g->note, sizeof g->note, "%s", why);
	report_event(f, REPORT_GROUP_NOTED,
		      json_pack("{s:i, s:s, s:s}", "job", (int)g->id, "kind", g->ops->name, "reason", g->note));
	for (uint32_t i = 0; i < g->count; i++)
		if (!g->member[i].failed && !g->member[i].left)
			tell(f, &g->member[i], REC_GROUP_NOTED, 0);
}

/* offload_over() - The group can do no more: all members are told
 * @m:		Who has found out
 */
void offload_over(struct fabric *f, struct member *m, const char *why)
{
	struct group *g = m->group;

	if (m->failed)
		return;
	snprintf(g->reason, sizeof g->reason, "%s", why);
	report_event(f, REPORT_GROUP_FAILED,
		      json_pack("{s:i, s:s, s:i, s:s}", "job", (int)g->id, "kind", g->ops->name, "rank", (int)m->nic->rank,
				"reason", g->reason));
	for (uint32_t i = 0; i < g->count; i++) {
		struct member *o = &g->member[i];
		if (!o->failed && !o->left)
			tell(f, o, REC_GROUP_FAILED, m->nic->rank);
		o->failed = true;
	}
}

/* offload_failed() - A member's work cannot be done
 * @why:	What the member has seen
 */
void offload_failed(struct fabric *f, struct member *m, const char *why)
{
	char text[128], all[sizeof m->group->reason];
	const char *culprit = offload_culprit(f, m->group, text, sizeof text);

	snprintf(all, sizeof all, "%.*s%s%s", (int)(sizeof all - sizeof text - 4), why, *culprit ? "; " : "", culprit);
	offload_over(f, m, all);
}

const struct worker_services offload_services = {
	.group = offload_group,
	.leave = leave,
	.check = check,
	.post = post,
	.ended = group_worker_ended,
	.reason = reason,
};
