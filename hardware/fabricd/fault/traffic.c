/* Generated traffic: flows that NICs send without a worker
 *
 * Theory of Operation
 *
 * A flow is one RDMA write from NIC to NIC over queue pairs of its own, in real
 * frames, under the NIC's congestion control.  It carries a fixed pattern, which the
 * receiver throws away.  A flow takes a queue pair that an earlier flow between the same
 * two NICs has finished with, if there is one.
 *
 * When the fault ends, flows that have not started never will; those under way
 * are sent to their end.
 */
#include <stdlib.h>

#include "base/json.h"
#include "base/units.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fault/fault.h"
#include "nic/nic.h"
#include "transport/qp.h"

#define FLOWS_MAX 1000000
#define BYTES_MAX (1ull << 31)

static const uint8_t pattern[16384] = {0x52, 0x61, 0x69, 0x6c, 0x62, 0x65, 0x64};

static struct generated *flow_of(const struct qp *q)
{
	return (struct generated *)q->owner;
}

static const uint8_t *payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n)
{
	(void)f;
	(void)q;
	(void)wr;
	(void)n;
	return pattern;
}

/* All of a flow is acknowledged, or its queue pair has failed */
static void sent(struct fabric *f, struct qp *q, const struct send_wr *wr, enum wc_status status)
{
	(void)wr;
	flow_of(q)->failed = status != WC_SUCCESS;
	flow_of(q)->end = f->clock.now;
}

static bool memory(struct qp *q, enum right right, uint32_t key, uint64_t offset, uint64_t length, uint8_t **at)
{
	(void)q;
	(void)right;
	(void)key;
	(void)offset;
	(void)length;
	*at = NULL;
	return true;
}

static const struct qp_owner_ops owner_ops = {.lends = true, .generated = true, .payload = payload, .sent = sent, .memory = memory};

/* traffic_under_way() - Does a queue pair carry a flow that has not ended? */
bool traffic_under_way(const struct qp *q)
{
	return q->owner->ops->generated && flow_of(q)->end == PS_NEVER;
}

static bool whole(const json_t *v, double most, double *to)
{
	*to = json_number_value(v);
	return json_is_number(v) && *to >= 0 && *to <= most;
}

/* traffic_load() - Take in the flows: [from, to, bytes, start_ns]
 * Return: NULL, or what is wrong
 */
const char *traffic_load(struct fabric *f, struct fault *x, const json_t *request)
{
	const json_t *flows = json_object_get(request, "flows"), *v;
	struct generated **at = &x->flows;
	size_t i;

	if (!json_array_size(flows) || json_array_size(flows) > FLOWS_MAX)
		return "inject: flows: a list of [from, to, bytes, start_ns] is needed";
	json_array_foreach(flows, i, v) {
		double from, to, bytes, start;
		if (!whole(json_array_get(v, 0), (double)f->nic_count - 1, &from) ||
		    !whole(json_array_get(v, 1), (double)f->nic_count - 1, &to) ||
		    !whole(json_array_get(v, 2), (double)BYTES_MAX, &bytes) || !whole(json_array_get(v, 3), 1e15, &start) ||
		    bytes < 1 || (uint32_t)from == (uint32_t)to)
			return "inject: flows: [from, to, bytes, start_ns], of two ranks and 1 byte to 2 GiB";
		struct generated *g = calloc(1, sizeof *g);
		if (!g)
			abort();
		*g = (struct generated){.owner.ops = &owner_ops, .fault = x, .from = &f->nics[(uint32_t)from], .to = &f->nics[(uint32_t)to],
					.bytes = (uint64_t)bytes, .number = (uint32_t)i,
					.start = (ps_t)(start * PS_PER_NS + 0.5), .end = PS_NEVER};
		*at = g;
		at = &g->next;
	}
	return NULL;
}

/* traffic_switch() - The fault goes on: its flows start, each in its time from now */
void traffic_switch(struct fabric *f, struct fault *x, bool on)
{
	for (struct generated *g = x->flows; on && g; g = g->next) {
		if (g->started)
			continue; /* of an earlier time, and still under way or over */
		event_add(f, f->clock.now + g->start, EV_TRAFFIC, g->from->n.index, 0, 0, x->number << 32 | g->number, g, 0);
	}
}

static struct qp *idle_qp(struct fabric *f, struct nic *from, struct nic *to, struct qp_owner *owner)
{
	for (uint32_t i = 0; i < from->qp_count; i++) {
		struct qp *q = from->qps[i];
		if (q->owner->ops->generated && q->peer == to && q->state == QP_READY && q->peer_qp->state == QP_READY &&
		    flow_of(q)->end != PS_NEVER)
			return q;
	}
	struct qp *a = qp_new(from, owner), *b = a ? qp_new(to, owner) : NULL;
	if (!b)
		return NULL;
	a->connect_peer = to->rank;
	b->connect_peer = from->rank;
	a->no_scale_up = b->no_scale_up = true;
	qp_connected(f, a, b);
	return a;
}

/* traffic_start() - A flow's time has come */
void traffic_start(struct fabric *f, struct generated *g)
{
	if (!g->fault->on)
		return;
	g->started = true;
	g->start = f->clock.now;
	g->qp = idle_qp(f, g->from, g->to, &g->owner);
	if (!g->qp) {
		g->failed = true;
		return;
	}
	g->fault->hits++;
	g->qp->owner = g->qp->peer_qp->owner = &g->owner;
	qp_post_send(f, g->qp, &(struct send_wr){.length = g->bytes, .opcode = WR_WRITE, .signaled = true});
}

/* traffic_json() - What became of the flows: [from, to, bytes, start_ns, end_ns or null] */
json_t *traffic_json(const struct fault *x)
{
	json_t *list = json_array();

	for (const struct generated *g = x->flows; g; g = g->next)
		if (g->started)
			json_array_append_new(list, json_pack("[i, i, I, o, o]", (int)g->from->rank, (int)g->to->rank,
							      (json_int_t)g->bytes, ns_json(g->start),
							      g->end == PS_NEVER || g->failed ? json_null() : ns_json(g->end)));
	return list;
}
