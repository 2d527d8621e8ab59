/* What may be asked on the control socket: one function a request, one table. */
#include <stdio.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/json.h"
#include "base/units.h"
#include "base/wall.h"
#include "control/control.h"
#include "control/sample.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "fault/fault.h"
#include "link/cable.h"
#include "link/capture.h"
#include "link/port.h"
#include "offload/offload.h"
#include "switch/ovs.h"
#include "wire/roce.h"
#include "worker/worker.h"

#define RATE_MAX 100000000000000LL /* 100 Tb/s */
#define DELAY_MAX_NS 1e12

static const char answered_later[] = "later";

/* Each takes the request and an answer to fill in; returns NULL, or what is wrong, or answered_later */

static const char *status(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *workers = json_array();

	(void)c;
	(void)request;
	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct worker *w = &f->workers[i];
		char text[256] = "";
		bool lacks = w->state == WORKER_WAITING && worker_waits_for(w, text, sizeof text);
		json_array_append_new(workers,
				      json_pack("{s:i, s:s, s:o, s:s, s:b, s:s}", "rank", (int)w->rank, "state",
						worker_state_name(w->state), "time_ns", ns_json(w->now), "waits_for", text,
						"lacks", lacks, "reason", w->reason));
	}
	bool real = f->clock.mode == CLOCK_REAL;
	json_object_set_new(answer, "time_ns", ns_json(real ? clock_real_now(f) : f->clock.now));
	json_object_set_new(answer, "clock", json_string(real ? "real" : "virtual"));
	json_object_set_new(answer, "running", json_boolean(f->clock.started));
	json_object_set_new(answer, "idle", json_boolean(fabric_idle(f)));
	json_object_set_new(answer, "workers", workers);
	json_object_set_new(answer, "controllers", controllers_json(f));
	return NULL;
}

/* Who is waited for; also a sign of life of our own, and it asks controllers for one */
static const char *waits(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *list = worker_waits_json(f), *holds = clock_waits_json(f);

	(void)c;
	(void)request;
	json_array_extend(list, holds);
	json_decref(holds);
	if (f->ovs->head && wall_ns() - f->ovs->settled_ns >= 1000000000)
		json_array_append_new(list, json_pack("{s:s, s:f}", "who", "ovs", "silent_s",
						      (double)(wall_ns() - f->ovs->settled_ns) / 1e9));
	json_object_set_new(answer, "waits", list);
	json_object_set_new(answer, "time_ns", ns_json(f->clock.mode == CLOCK_REAL ? clock_real_now(f) : f->clock.now));
	controllers_ping(f);
	return NULL;
}

/* What a controller says to a `ping`: that it says anything is all that counts */
static const char *pong(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)f;
	(void)c;
	(void)request;
	(void)answer;
	return NULL;
}

static const char *start(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const json_t *ranks = json_object_get(request, "ranks");

	(void)answer;
	if (f->clock.mode == CLOCK_REAL)
		return "start: the real clock runs already";
	if (!json_is_array(ranks))
		return "start: ranks: a list of ranks is needed";
	for (size_t i = 0; i < json_array_size(ranks); i++) {
		const json_t *r = json_array_get(ranks, i);
		if (!json_is_integer(r) || json_integer_value(r) < 0 || json_integer_value(r) >= f->nic_count)
			return "start: ranks: no such rank";
	}
	for (size_t i = 0; i < json_array_size(ranks); i++)
		f->workers[json_integer_value(json_array_get(ranks, i))].expected = true;
	for (struct control_conn *other = f->conns; other; other = other->next)
		other->starts = other == c;
	f->clock.started = true;
	clock_workers_changed(f);
	return NULL;
}

static const char *begin_next_job(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	const char *wrong = next_job(f);
	if (!wrong)
		json_object_set_new(answer, "time_ns", ns_json(f->clock.mode == CLOCK_REAL ? clock_real_now(f) : f->clock.now));
	return wrong;
}

static const char *run_until(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)answer;
	return until_ask(f, request);
}

static const char *counters(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	json_t *all = counters_json(f);

	(void)c;
	(void)request;
	json_object_update(answer, all);
	json_decref(all);
	return NULL;
}

static const char *flows(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	json_object_set_new(answer, "flows", rules_json(f));
	return NULL;
}

static const char *cable(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *name = json_string_value(json_object_get(request, "cable"));
	const json_t *up = json_object_get(request, "up"), *rate = json_object_get(request, "rate_bps"),
		     *delay = json_object_get(request, "delay_ns"), *at = json_object_get(request, "at_ns");
	struct cable *cable = name ? fabric_cable(f, name) : NULL;
	struct change change = {.cable = cable, .delay = -1};

	(void)c;
	(void)answer;
	if (!cable)
		return "cable: no cable of that name";
	if (up) {
		if (!json_is_boolean(up))
			return "cable: up: true or false";
		change.set_up = true;
		change.up = json_is_true(up);
	}
	if (rate) {
		double bps = json_number_value(rate);
		if (!(bps >= 1) || bps > (double)RATE_MAX)
			return "cable: rate_bps: from 1 to 1e14";
		change.rate_bps = (int64_t)bps;
	}
	if (delay) {
		double ns = json_number_value(delay);
		if (!json_is_number(delay) || !(ns >= 0) || ns > DELAY_MAX_NS)
			return "cable: delay_ns: from 0 to 1e12";
		change.delay = (ps_t)(ns * PS_PER_NS + 0.5);
	}
	ps_t now = f->clock.mode == CLOCK_REAL ? clock_real_now(f) : f->clock.now, t = now;
	if (at) {
		double ns = json_number_value(at);
		if (!json_is_number(at) || !(ns >= 0) || ns > 1e15)
			return "cable: at_ns: from 0 to 1e15";
		t = (ps_t)(ns * PS_PER_NS + 0.5);
	}
	struct change *kept = change_new(f, &change);
	event_add(f, t > now ? t : now, EV_CABLE, 0, 0, 0, f->last_change, kept, 0);
	return NULL;
}

static const char *capture(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	struct port *p = fabric_port_named(f, json_string_value(json_object_get(request, "port")));
	const char *path = json_string_value(json_object_get(request, "path"));

	(void)answer;
	if (!p)
		return "capture: port: no such port (NODE:NUMBER)";
	if (!path)
		return "capture: path is needed";
	FILE *file = control_file(c);
	return file ? capture_start(f, p, path, file) : "capture: the file was not handed over, or is not to be written";
}

static const char *stop_capture(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *path = json_string_value(json_object_get(request, "path"));

	(void)c;
	(void)answer;
	return path ? capture_stop(f, path) : "capture_stop: path is needed";
}

static void send_all(struct fabric *f, struct control_conn *c, json_t *events)
{
	const json_t *e;
	size_t i;

	json_array_foreach(events, i, e)
		control_send(f, c, json_incref((json_t *)e));
	json_decref(events);
}

static const char *subscribe(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)f;
	(void)answer;
	const char *acts = json_string_value(json_object_get(request, "acts"));

	if (acts && strcmp(acts, "controller") && strcmp(acts, "agent"))
		return "subscribe: acts: controller or agent";
	strcpy(c->acts, acts ? acts : "");
	c->subscribed = true;
	c->settles = json_is_true(json_object_get(request, "settles"));
	if (c->settles) /* a controller that comes late, or again, learns what is down or slow */
		send_all(f, c, cables_known(f));
	if (!strcmp(c->acts, "controller")) { /* and what is injected into it */
		send_all(f, c, acts_on(f));
		send_all(f, c, offload_jobs(f));
	}
	return NULL;
}

static const char *settled(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const json_t *event = json_object_get(request, "event");

	(void)answer;
	if (!json_is_integer(event))
		return "settled: event: the id of an event is needed";
	if (!strcmp(c->acts, "agent"))
		control_hear_ends(f);
	if (f->flow_cache)
		flow_cache_settled(f); /* while the clock stands still */
	bool waited = clock_answered(f, (uint64_t)json_integer_value(event));
	const char *unconfirmed = json_string_value(json_object_get(request, "unconfirmed"));
	if (unconfirmed) { /* old rules may still meet frames */
		f->ovs->unconfirmed++;
		fprintf(stderr, "fabricd: the controller's rules are not known to be in force: %.200s\n", unconfirmed);
	}
	const json_t *job = json_object_get(request, "job");
	/* the real clock waits for nobody: there only the job knows whether the answer is missing */
	return job && (waited || f->clock.mode == CLOCK_REAL) ? offload_answered(f, (uint64_t)json_integer_value(event), job) : NULL;
}

static const char *ask_controller(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	(void)answer;
	controller_ask(f);
	return NULL;
}

/* "already": a client that undoes something goes on where there is nothing to undo */
static const char *unless_so(const char *wrong, const char *so, json_t *answer)
{
	if (wrong == so)
		json_object_set_new(answer, "already", json_true());
	return wrong;
}

static const char *inject(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	return unless_so(fault_inject(f, request), fault_is_in, answer);
}

static const char *heal(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *id = json_string_value(json_object_get(request, "fault"));

	(void)c;
	return id ? unless_so(fault_heal(f, id), fault_is_out, answer) : "heal: fault: an id is needed";
}

static const char *faults(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	json_object_set_new(answer, "faults", faults_json(f));
	return NULL;
}

static const char *traffic_results(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *id = json_string_value(json_object_get(request, "fault"));
	json_t *flows = id ? fault_flows_json(f, id) : NULL;

	(void)c;
	if (!flows)
		return "traffic_results: fault: no traffic fault of that id";
	json_object_set_new(answer, "flows", flows);
	return NULL;
}

static const char *program(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)answer;
	const char *wrong = accelerator_program(f, request);
	if (wrong)
		offload_refuse(f, (uint32_t)json_integer_value(json_object_get(request, "job")), wrong);
	return wrong;
}

static const char *moved(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *why = json_string_value(json_object_get(request, "why"));
	double job = number_in(request, "job", 1, PSN_MASK);

	(void)c;
	(void)answer;
	if (job < 0 || !why)
		return "job_moved: job and why are needed";
	offload_moved(f, (uint32_t)job, why);
	return NULL;
}

static const char *stop(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	(void)answer;
	f->stop = true;
	return NULL;
}

/* Answered later, by control_idle() */
static const char *quiesce(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)answer;
	control_later(&c->quiesce, request, f->clock.now);
	return answered_later;
}

/* Likewise, by control_carried_out() */
static const char *carried_out(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)answer;
	control_later(&c->carried_out, request, f->clock.mode == CLOCK_REAL ? clock_real_now(f) : f->clock.now);
	return answered_later;
}

static const struct {
	const char *op;
	const char *(*handle)(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
} requests[] = {
#define REQUEST(op, handle, arguments, answer) {#op, handle},
#include "control/requests.def"
#undef REQUEST
};

/* control_line() - Answer one request */
void control_line(struct fabric *f, struct control_conn *c, const char *text, size_t len)
{
	json_error_t error;
	json_t *request = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	json_t *answer = json_object();
	json_t *id = json_object_get(request, "id");
	const char *op = json_string_value(json_object_get(request, "op"));
	const char *wrong = "op: unknown";

	if (id)
		json_object_set(answer, "id", id);
	if (!json_is_object(request)) {
		wrong = request ? "a request is an object" : error.text;
	} else if (op) {
		for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
			if (!strcmp(op, requests[i].op))
				wrong = requests[i].handle(f, c, request, answer);
	}
	if (wrong == answered_later) {
		json_decref(answer);
		json_decref(request);
		return;
	}
	json_object_set_new(answer, "ok", json_boolean(!wrong));
	if (wrong)
		json_object_set_new(answer, "error", json_string(wrong));
	control_send(f, c, answer);
	json_decref(request);
}
