/* What is known of credit, by queue pair, as sender and as receiver (transport/credit.h) */
#include <jansson.h>

#include "control/control.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/congestion.h"
#include "transport/credit.h"
#include "transport/qp.h"

static uint32_t place_of(const struct qp *q)
{
	uint32_t place = 0;

	for (const struct qp *at = q; at && at->credit->queued; at = at->credit->prev)
		place++;
	return place;
}

static json_t *sends(const struct fabric *f, const struct qp *q)
{
	const struct credit *c = q->credit;
	bool waits = c->ask != PS_NEVER;

	return json_pack("{s:i, s:i, s:s, s:I, s:I, s:b, s:I, s:I}", "qp", (int)q->number, "peer", (int)q->connect_peer, "control",
			 q->cc->name, "left_bytes", (json_int_t)c->left, "granted_bytes", (json_int_t)c->known, "speculates",
			 (int)c->speculates, "waits_ns", (json_int_t)(waits ? (f->clock.now - c->since) / PS_PER_NS : 0), "asked",
			 (json_int_t)c->asked);
}

static json_t *receives(const struct qp *q)
{
	const struct credit *c = q->credit;
	int32_t wants = (int32_t)(c->target - c->granted);

	return json_pack("{s:i, s:i, s:s, s:I, s:I, s:I, s:f, s:i}", "qp", (int)q->number, "peer", (int)q->connect_peer, "control",
			 q->answers->cc->name, "granted_bytes", (json_int_t)c->granted, "wanted_bytes",
			 (json_int_t)(wants > 0 ? wants : 0), "owed_bytes", (json_int_t)c->owed, "rank", c->rank, "place",
			 (int)place_of(q));
}

/* credits_answer() - Of a rank's queue pairs */
const char *credits_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *rank = json_object_get(request, "rank"), *sending = json_array(), *receiving = json_array();
	uint64_t k = json_is_integer(rank) ? (uint64_t)json_integer_value(rank) : UINT64_MAX;

	(void)c;
	json_object_set_new(answer, "sends", sending);
	json_object_set_new(answer, "receives", receiving);
	if (k >= f->nic_count)
		return "rank: there is none of that number";
	for (uint32_t i = 0; i < f->nics[k].qp_count; i++) {
		const struct qp *q = f->nics[k].qps[i];
		if (q->credit && q->cc->arrived)
			json_array_append_new(sending, sends(f, q));
		if (q->credit && q->credit->forget)
			json_array_append_new(receiving, receives(q));
	}
	return NULL;
}
