/* A fabric's next job
 *
 * Theory of Operation
 *
 * A rank's socket takes one session.  When all workers of a job have gone, `next_job`
 * puts every rank back to where it was when the fabric came up: its regions are
 * unmapped, its queue pairs, completions and rendezvous forgotten.  Then the next job's
 * workers may connect.  Counters go on; watermarks and lateness begin anew.
 *
 * A job must give the figures that it gives on a new fabric.  Paths and random draws
 * depend on the numbers of queue pairs, offloaded jobs and frames, so these begin again
 * from the first.  They do not if something is still under way, which can only be with
 * the real clock, or where the clock is told how far to go (until.c): then they go on, so
 * that no old packet is taken for a new one, and generated flows keep their queue pairs.
 *
 * The virtual clock stands still until the next `start`.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "accelerator/accelerator.h"
#include "base/units.h"
#include "config/transports.h"
#include "control/control.h"
#include "engine/clock.h"
#include "connection/destroy.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fault/fault.h"
#include "link/cable.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/port.h"
#include "link/scheduler.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "records/records.h"
#include "switch/adaptive.h"
#include "switch/switch.h"
#include "transport/credit.h"
#include "transport/qp.h"
#include "worker/worker.h"

/* Of a generated flow that is under way */
static bool kept(const struct qp *q)
{
	return traffic_under_way(q) && q->state == QP_READY;
}

/* Is it an event of the job before, which must not happen any more? */
static bool of_before(struct event *e, void *stands)
{
	switch (event_kind(e)) {
	case EV_DOORBELL: post_free(e->a); return true;
	case EV_WAKE: return true;
	case EV_GROUP:
	case EV_GROUP_LEFT: return *(const bool *)stands; /* its group goes at once */
	default: return false;
	}
}

/* Numbers go on behind those of flows that go on */
static void qps_go(struct fabric *f, struct nic *n, bool anew)
{
	qps_destroy(f, n);
	if (!n->qp_count && (anew || n->qp_next > QP_NUMBERS / 4))
		n->qp_next = 0;
}

static void worker_forget(struct worker *w)
{
	regions_unmap(w);
	w->programs = 0;
	free(w->places);
	w->places = NULL;
	w->wait_written = false;
	w->state = WORKER_ABSENT;
	w->expected = w->hung = w->asleep = false;
	w->now = w->host = 0;
	free(w->compute_free);
	w->compute_free = NULL;
	w->hosts = false;
	w->wait_records = 0;
	w->wait_until = w->wake_at = 0;
	records_free(&w->records);
	w->posts = w->posts_under_way = 0;
	w->syncing = w->connecting = 0;
	w->reason[0] = 0;
}

/* Pauses are counted in whole us: a job's count must not begin within one */
static void pauses_round(const struct fabric *f, const struct port *p, struct traffic_class *tc, unsigned class)
{
	ps_t under_way = p->paused >> class & 1 ? f->clock.now - tc->paused_since : 0;
	ps_t over = (tc->paused_total + under_way) % PS_PER_US;

	if (over)
		tc->paused_total += PS_PER_US - over;
}

/* Watermarks begin anew, at the levels of now */
static void watermarks_clear(struct fabric *f)
{
	for (uint32_t i = 0; i < f->node_count; i++) {
		const struct node *n = f->nodes[i];
		for (uint16_t k = 0; k < n->port_count; k++) {
			struct port *p = &n->ports[k];
			p->queued_max = p->queued_bytes;
			if (!p->classes_used)
				scheduler_reset(p);
			CLASSES_EACH(c) {
				p->tc[c].queue_max = p->queue[c].bytes;
				p->tc[c].in.max_bytes = p->tc[c].in.bytes;
				p->tc[c].in.headroom_max = p->tc[c].in.headroom;
				pauses_round(f, p, &p->tc[c], c);
			}
		}
	}
	for (uint32_t i = 0; i < f->switch_count; i++)
		f->switches[i].used_max = f->switches[i].used;
	for (uint32_t i = 0; i < f->accelerator_count; i++)
		accelerator_watermarks_clear(&f->accelerators[i]);
	memset(f->clock.lateness, 0, sizeof f->clock.lateness);
	f->clock.lateness_count = 0;
	f->clock.lateness_max = 0;
}

/* next_job() - Every rank may connect once more
 * Return: NULL, or why not; then nothing has changed
 */
const char *next_job(struct fabric *f)
{
	bool virtual = f->clock.mode == CLOCK_VIRTUAL, stands = virtual && !f->clock.started;
	bool anew = stands || fabric_idle(f);

	SESSIONS_EACH(f, w)
		if (w->fd >= 0)
			return "next_job: a rank has a session still";
	if (f->groups && !stands)
		return "next_job: offloads have not ended yet";
	if (virtual && !anew && !f->clock.bounded)
		return "next_job: something is under way still: quiesce first";
	programs_over(f);
	event_forget(f, of_before, &stands);
	for (uint32_t i = 0; i < f->nic_count; i++)
		for (uint32_t k = 0; k < f->nics[i].qp_count; k++)
			f->nics[i].qps[k]->gone = !kept(f->nics[i].qps[k]);
	qps_gone(f);
	offload_free(f);
	for (uint32_t i = 0; i < f->nic_count; i++) {
		qps_go(f, &f->nics[i], anew);
		worker_forget(f->nics[i].worker);
	}
	syncs_forget(f);
	watermarks_clear(f);
	if (anew) {
		f->last_job = 0;
		for (uint32_t i = 0; i < f->node_count + f->scale_up_count; i++)
			f->nodes[i]->made = 0;
		for (uint32_t i = 0; i < f->switch_count; i++)
			adaptive_forget(&f->switches[i]);
		for (uint32_t i = 0; i < f->cable_count; i++)
			cable_restart(f, &f->cables[i]); /* credits that were lost, and when it would have been said what was sent */
	}
	f->stalled_reported = false;
	if (virtual)
		f->clock.started = false;
	faults_next_job(f);
	clock_workers_changed(f);
	return NULL;
}

/* transports_answer() - What the next job may name when it connects */
const char *transports_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)answer;
	return transports_name(f, json_object_get(request, "transports"));
}
