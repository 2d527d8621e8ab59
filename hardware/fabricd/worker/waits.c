/* Whom the fabric waits for among workers, and what those lack that wait themselves */
#include <jansson.h>
#include <stdio.h>

#include "base/patience.h"
#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/records.h"
#include "worker/worker.h"

/* Does the worker owe a message? */
static bool its_turn(const struct worker *w)
{
	return w->fd >= 0 && (w->state == WORKER_RUNNING || w->state == WORKER_ABSENT || worker_holds(w));
}

/* worker_look_after() - Report workers that owe a message and hang */
void worker_look_after(struct fabric *f)
{
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct worker *w = &f->workers[i];
		char why[128];
		if (!its_turn(w) || w->hung || !patience_look(&w->patience, f->patience_ns, false, why, sizeof why))
			continue;
		int64_t heard = w->patience.heard_ns;
		worker_readable(f, w);
		if (!its_turn(w) || w->patience.heard_ns != heard)
			continue; /* the word was there */
		w->hung = true;
		report_event(f, REPORT_WORKER_HUNG, json_pack("{s:i, s:s}", "rank", (int)w->rank, "reason", why));
	}
}

/* worker_waits_json() - Workers that have owed a message for a second or more, and ranks that have not connected */
json_t *worker_waits_json(const struct fabric *f)
{
	json_t *list = json_array();
	int64_t now = wall_ns();

	SESSIONS_EACH(f, w) {
		int64_t silent = now - w->patience.heard_ns;
		if (w->fd < 0 && w->state == WORKER_ABSENT && w->expected)
			json_array_append_new(list, json_pack("{s:s, s:i}", "who", "absent", "rank", (int)w->rank));
		else if (its_turn(w) && silent >= 1000000000)
			json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:f, s:s%}", "who", "worker", "rank",
							      (int)w->rank, "pid", w->patience.pid, "silent_s",
							      (double)silent / 1e9, "state", &w->patience.state, (size_t)1));
	}
	return list;
}

/* worker_waits_for() - In words, what a waiting worker lacks
 * Return: whether it lacks anything that others have to give
 */
bool worker_waits_for(const struct worker *w, char *text, size_t room)
{
	if (w->hosts) {
		snprintf(text, room, "programs that it has started to end");
		return true;
	}
	int n = snprintf(text, room, "%zu of %llu records", w->records.count, (unsigned long long)w->wait_records);
	uint32_t connecting = 0, sending = 0, receiving = 0;

	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		const struct qp *q = w->nic->qps[i];
		if (q->state == QP_CONNECTING) {
			connecting++;
			snprintf(text + n, room - (size_t)n, "; rank %u to connect (tag %u)", q->connect_peer, q->connect_tag);
		} else if (q->state == QP_READY) {
			sending += q->sq.head != q->sq.tail;
			receiving += q->rq.head != q->rq.tail;
		}
	}
	if (!connecting && (size_t)n < room)
		snprintf(text + n, room - (size_t)n, "; %u queue pairs with requests to send, %u with receives posted%s",
			 sending, receiving, w->syncing ? "; other ranks to SYNC" : "");
	return connecting || w->syncing || w->records.count < w->wait_records;
}
