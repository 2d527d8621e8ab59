/* What programs have at their NICs: sessions, memory, queue pairs as they have brought them to their states. */
#include <jansson.h>

#include "base/json.h"
#include "connection/attributes.h"
#include "control/control.h"
#include "engine/fabric.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/worker.h"

static const char *verbs_state(const struct qp *q)
{
	if (q->state == QP_ERROR)
		return "ERR";
	switch ((enum asked_state)q->own->asked) {
	case ASK_RESET: return "RESET";
	case ASK_INIT: return "INIT";
	case ASK_RTR: return "RTR";
	case ASK_RTS: return q->own->sends_broken ? "SQE" : "RTS";
	case ASK_SQD: return "SQD";
	case ASK_ERROR: return "ERR";
	}
	return "";
}

static json_t *qp_of_program(const struct qp *q)
{
	bool peer = !q->own->datagrams && q->peer;

	return json_pack("{s:i, s:s, s:s, s:o, s:o}", "qp", (int)q->number, "type", q->own->datagrams ? "UD" : q->own->unreliable ? "UC" : "RC", "state",
			 verbs_state(q), "peer", peer ? json_integer(q->peer->rank) : json_null(), "peer_qp",
			 peer ? json_integer(q->peer_number) : json_null());
}

static json_t *program_json(const struct worker *w)
{
	json_t *qps = json_array();

	for (uint32_t i = 0; i < w->nic->qp_count; i++)
		if (w->nic->qps[i]->owner == &w->owner && w->nic->qps[i]->own)
			json_array_append_new(qps, qp_of_program(w->nic->qps[i]));
	const struct regions *all = &w->regions;

	return json_pack("{s:i, s:i, s:s, s:o, s:i, s:I, s:i, s:i, s:I, s:o}", "rank", (int)w->rank, "pid", (int)w->patience.pid, "state",
			 worker_state_name(w->state), "time_ns", ns_json(w->now), "regions",
			 (int)(all->count - all->windows - all->on_device), "region_bytes", (json_int_t)(all->bytes - all->device_bytes), "windows",
			 (int)all->windows, "device_memories", (int)all->on_device, "device_bytes", (json_int_t)all->device_bytes, "qps", qps);
}

/* programs_answer() - Of all ranks */
const char *programs_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *programs = json_array();

	(void)c;
	(void)request;
	SESSIONS_EACH(f, w)
		if (w->program && (w->state == WORKER_RUNNING || w->state == WORKER_WAITING))
			json_array_append_new(programs, program_json(w));
	json_object_set_new(answer, "programs", programs);
	return NULL;
}
