/* Faults: what is injected, when it is on, and how it is healed
 *
 * Theory of Operation
 *
 * A fault is injected by the control socket, with an id of the caller's.  It goes
 * on at `at`, off `for` later, and with `every` so again and again; each is an
 * event, so it happens at the same emulated time in every run.  What a fault does
 * is one of a few primitives:
 *
 *	frames	drops or changes frames on cables (frames.c)
 *	params	lays other parameters over those of a cable, port, switch, NIC (params.c)
 *	swap	exchanges the far ends of two cables (likewise)
 *	act	asks the controller or the testbed to do something, and waits for it
 *	traffic	makes NICs send flows of their own (traffic.c)
 *
 * No fault overwrites anything: frames pass through the faults that are on, and
 * parameters are always computed anew from the base and the faults.  So when one is
 * healed, exactly the others remain, in whatever order they are healed.
 *
 * What an operator configures while the fabric is up is kept here, too.  It uses the
 * same primitives, takes precedence over all faults, earlier or later, and changes none
 * of their random draws.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "fault/fault.h"
#include "link/impairment.h"
#include "worker/worker.h"

#define FAULTS_MAX 1024
#define OPERATORS ((uint64_t)1 << 40) /* their numbers begin here */
#define OVER_FAULTS ((uint64_t)1 << 63) /* in the order of being switched on */

static const char *act_load(struct fabric *f, struct fault *x, const json_t *request);

/* What fabricd can be asked to do, by enum fault_kind */
static const struct {
	const char *name;
	const char *(*load)(struct fabric *f, struct fault *x, const json_t *request); /* Return: NULL, or what is wrong */
} primitives[FAULT_KINDS] = {
#define PRIMITIVE(kind, name, load, keys) {#name, load},
#include "fault/primitives.def"
#undef PRIMITIVE
};

static struct fault *find(struct fabric *f, const char *id)
{
	struct fault *x = f->faults;

	while (x && strcmp(x->id, id))
		x = x->next;
	return x;
}

/* fault_first_on() - The fault of a kind that was switched on next after the @after-th */
struct fault *fault_first_on(struct fabric *f, enum fault_kind kind, uint64_t after)
{
	struct fault *first = NULL;

	for (struct fault *x = f->faults; x; x = x->next)
		if (x->on && x->kind == kind && x->order > after && (!first || x->order < first->order))
			first = x;
	return first;
}

static void fault_free(struct fault *x)
{
	while (x->flows) {
		struct generated *g = x->flows;
		x->flows = g->next;
		free(g);
	}
	json_decref(x->request);
	free(x->rule.ports);
	free(x);
}

static const char *act_load(struct fabric *f, struct fault *x, const json_t *request)
{
	const char *to = json_string_value(json_object_get(request, "to"));

	if (!to || (strcmp(to, "controller") && strcmp(to, "agent")))
		return "inject: to: controller or agent";
	if (!json_is_object(json_object_get(request, "spec")))
		return "inject: spec: an object for who acts";
	strcpy(x->to, to);
	return report_acts(f, to) ? NULL : "inject: nobody is connected who could do that";
}

static json_t *act_event(struct fabric *f, const struct fault *x, uint64_t id, bool on)
{
	return json_pack("{s:s, s:I, s:s, s:b, s:s, s:O, s:o}", "event", report_name(REPORT_ACT), "id", (json_int_t)id, "fault", x->id, "on",
			 on, "to", x->to, "spec", json_object_get(x->request, "spec"), "time_ns", ns_json(f->clock.now));
}

/* acts_on() - What a controller that has just come is told: the faults that it carries out and that are on */
json_t *acts_on(struct fabric *f)
{
	json_t *events = json_array();
	uint64_t after = 0;

	for (struct fault *x; (x = fault_first_on(f, FAULT_ACT, after)); after = x->order)
		if (!strcmp(x->to, "controller"))
			json_array_append_new(events, act_event(f, x, ++f->last_port_event, true));
	return events;
}

static void act(struct fabric *f, struct fault *x, bool on)
{
	uint64_t id = ++f->last_port_event;
	struct asked asked = report_ask(f, x->to, id, act_event(f, x, id, on));

	x->hits += on && asked.told;
}

/* controller_made_to_hang() - Does a fault that is on keep the controller from running? */
bool controller_made_to_hang(const struct fabric *f)
{
	for (const struct fault *x = f->faults; x; x = x->next) {
		const char *is = json_string_value(json_object_get(json_object_get(x->request, "spec"), "controller"));
		if (x->on && x->kind == FAULT_ACT && is && !strcmp(is, "hung"))
			return true;
	}
	return false;
}

static void set_on(struct fabric *f, struct fault *x, bool on)
{
	if (x->on == on)
		return;
	x->on = on;
	x->since = f->clock.now;
	if (on)
		x->order = ++f->last_fault_order | (x->operator ? OVER_FAULTS : 0);
	switch (x->kind) {
	case FAULT_FRAMES: frames_switch(f, x, on); break;
	case FAULT_PARAMS: params_in_force(f, x); break;
	case FAULT_SWAP: swaps_in_force(f); break;
	case FAULT_ACT: act(f, x, on); break;
	case FAULT_TRAFFIC: traffic_switch(f, x, on); break;
	case FAULT_KINDS: break;
	}
	x->hits += on && (x->kind == FAULT_PARAMS || x->kind == FAULT_SWAP);
	if (!x->operator)
		report_event(f, REPORT_FAULT, json_pack("{s:s, s:b}", "fault", x->id, "on", on));
}

static void later(struct fabric *f, struct fault *x, ps_t t, bool on)
{
	event_add(f, t, t > f->clock.now ? EV_FAULT : EV_FAULT_NOW, 0, 0, 0, x->number << 1 | on, x, on);
}

/* All workers are through: a fault whose time would come now belongs to no job */
static bool over(const struct fabric *f)
{
	bool any = false;

	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct worker *w = &f->workers[i];
		any = any || w->expected;
		if (w->expected && w->state != WORKER_DONE && w->state != WORKER_LOST)
			return false;
	}
	return any && f->clock.mode == CLOCK_VIRTUAL;
}

/* It is healed, and stays for its events and frames that may still come */
static void retire(struct fabric *f, struct fault *x)
{
	struct fault **at = &f->faults;

	x->healed = true;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	x->next = f->healed;
	f->healed = x;
}

static void go(struct fabric *f, struct fault *x, bool on)
{
	if (on && x->length != PS_NEVER)
		later(f, x, f->clock.now + x->length, false);
	if (on && x->every)
		later(f, x, f->clock.now + x->every, true);
	set_on(f, x, on);
	if (x->operator && !on && !x->every)
		retire(f, x); /* it is over: there is nothing to take back */
}

/* fault_event() - A fault is to go on or off */
void fault_event(struct fabric *f, struct fault *x, bool on)
{
	if (over(f)) {
		x->missed = true;
		x->missed_on = on;
		return;
	}
	go(f, x, on);
}

/* fault_forget_healed() - Remove the next events as long as they are those of healed faults: they do nothing */
void fault_forget_healed(struct fabric *f)
{
	const struct event *first;
	struct heap *from;

	while ((first = event_next(f, &from))) {
		enum event_kind kind = event_kind(first);
		struct event gone;
		if ((kind != EV_FAULT && kind != EV_FAULT_NOW) || !((const struct fault *)first->a)->healed)
			return;
		event_pop(from, &gone);
	}
}

/* faults_next_job() - Another job's workers will come: first, carry out what fell due since the last job ended */
void faults_next_job(struct fabric *f)
{
	for (struct fault *x = f->faults; x; x = x->next) {
		if (x->missed)
			later(f, x, f->clock.now, x->missed_on);
		x->missed = false;
	}
}

static const char *load_time(const json_t *request, const char *key, ps_t *to)
{
	const json_t *v = json_object_get(request, key);
	double ns = json_number_value(v);

	if (!v)
		return NULL;
	if (!json_is_number(v) || !(ns >= 0) || ns > 1e15)
		return "inject: at_ns, for_ns, every_ns: from 0 to 1e15";
	*to = (ps_t)(ns * PS_PER_NS + 0.5);
	return NULL;
}

static const char *load(struct fabric *f, struct fault *x, const json_t *request)
{
	const char *kind = json_string_value(json_object_get(request, "primitive")), *wrong;

	x->at = f->clock.mode == CLOCK_REAL ? clock_real_now(f) : f->clock.now;
	ps_t at = x->at;
	x->length = PS_NEVER;
	if ((wrong = load_time(request, "at_ns", &x->at)) || (wrong = load_time(request, "for_ns", &x->length)) ||
	    (wrong = load_time(request, "every_ns", &x->every)))
		return wrong;
	if (x->every && (x->length == PS_NEVER || x->length >= x->every || !x->length))
		return "inject: every_ns needs for_ns, more than 0 and shorter than it";
	x->at = x->at > at ? x->at : at;
	for (x->kind = 0; x->kind < FAULT_KINDS; x->kind++)
		if (kind && !strcmp(kind, primitives[x->kind].name))
			return primitives[x->kind].load(f, x, request);
	return "inject: primitive: frames, params, swap, act or traffic";
}

const char fault_is_in[] = "inject: fault: there is one of that id";
const char fault_is_out[] = "heal: no fault of that id";

/* fault_inject() - Take in a fault
 * Return: NULL, or what is wrong; then nothing has happened
 */
const char *fault_inject(struct fabric *f, const json_t *request)
{
	const char *id = json_string_value(json_object_get(request, "fault"));
	struct fault **at = &f->faults;
	bool operator = json_is_true(json_object_get(request, "operator"));
	unsigned count = 0;
	uint64_t last = operator ? OPERATORS : 0; /* of those that are there: what has come and gone changes no draw */

	if (!id || !*id || strlen(id) >= sizeof((struct fault *)0)->id)
		return "inject: fault: an id of up to 63 characters is needed";
	if (find(f, id))
		return fault_is_in;
	for (; *at; at = &(*at)->next) {
		last = (*at)->operator == operator && (*at)->number > last ? (*at)->number : last;
		if (++count == FAULTS_MAX)
			return "inject: more than 1024 faults";
	}
	struct fault *x = calloc(1, sizeof *x);
	if (!x)
		abort();
	strcpy(x->id, id);
	x->request = json_deep_copy(request);
	x->operator = operator;
	x->number = last + 1;
	const char *wrong = load(f, x, x->request);
	if (wrong) {
		fault_free(x);
		return wrong;
	}
	*at = x;
	if (f->clock.started && !over(f))
		later(f, x, x->at, true);
	else if (x->at <= f->clock.now)
		go(f, x, true); /* time does not run yet, and need not */
	else
		later(f, x, x->at, true);
	return NULL;
}

/* fault_heal() - Undo a fault, now
 * Return: NULL, or what is wrong
 */
const char *fault_heal(struct fabric *f, const char *id)
{
	struct fault *x = find(f, id);

	if (!x)
		return fault_is_out;
	set_on(f, x, false);
	retire(f, x);
	return NULL;
}

/* faults_json() - All faults that are not healed */
json_t *faults_json(struct fabric *f)
{
	json_t *list = json_array();

	for (const struct fault *x = f->faults; x; x = x->next)
		json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o, s:I, s:O}", "fault", x->id, "primitive",
						      primitives[x->kind].name, "on", x->on, "since_ns",
						      x->on ? ns_json(x->since) : json_null(), "hits", (json_int_t)x->hits,
						      "request", x->request));
	return list;
}

/* fault_counts_json() - Every fault that was ever injected, and how often it bit; what an operator does is none */
json_t *fault_counts_json(struct fabric *f)
{
	json_t *list = json_array();

	for (int healed = 0; healed < 2; healed++)
		for (const struct fault *x = healed ? f->healed : f->faults; x; x = x->next)
			if (!x->operator)
				json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "fault", x->id, "primitive", primitives[x->kind].name,
							      "hits", (json_int_t)x->hits));
	return list;
}

/* fault_flows_json() - What became of a traffic fault's flows, or NULL */
json_t *fault_flows_json(struct fabric *f, const char *id)
{
	const struct fault *x = find(f, id);

	for (const struct fault *h = f->healed; !x && h; h = h->next)
		if (!strcmp(h->id, id))
			x = h;
	return x && x->kind == FAULT_TRAFFIC ? traffic_json(x) : NULL;
}

void faults_close(struct fabric *f)
{
	for (int healed = 0; healed < 2; healed++) {
		struct fault **at = healed ? &f->healed : &f->faults;
		while (*at) {
			struct fault *x = *at;
			*at = x->next;
			fault_free(x);
		}
	}
}

const struct impairment fault_impairment = {.frame = frames_strike, .cable = params_of_cable};
