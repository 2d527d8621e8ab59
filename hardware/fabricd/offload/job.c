/* Jobs: what the controller is asked about a group
 *
 * The controller places trees, installs flows and OpenFlow groups, and programs accelerators over the control socket.  Then
 * it answers with what it grants, or why it refuses.
 */
#include <stdio.h>

#include "accelerator/accelerator.h"
#include "base/json.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "offload/offload.h"
#include "switch/switch.h"
#include "wire/roce.h"
#include "worker/services.h"

static const char no_answer[] = "the controller does not answer";

static json_t *job_json(const struct fabric *f, const struct group *g, enum report event)
{
	json_t *ranks = json_array(), *args = json_array(), *pools = json_object();

	for (uint32_t i = 0; i < g->count; i++)
		json_array_append_new(ranks, json_integer(g->member[i].nic->rank));
	for (int i = 0; i < GROUP_ARGS; i++)
		json_array_append_new(args, json_integer((json_int_t)g->args[i]));
	for (uint32_t i = 0; i < f->accelerator_count; i++) {
		json_t *pool = accelerator_json(&f->accelerators[i]);
		json_object_set_new(pool, "down", json_boolean(f->accelerators[i].sw->p.accelerator_down));
		json_object_set_new(pools, f->accelerators[i].sw->n.name, pool);
	}
	return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o}", "event", report_name(event), "job", (int)g->id, "kind", g->ops->name,
			 "ranks", ranks, "args", args, "accelerators", pools, "time_ns", ns_json(f->clock.now));
}

/* Tell the controller, and stand still until it has answered
 * @why:	If nobody will answer: why
 *
 * Return: the event's id, 0 if nobody will answer
 */
uint64_t job_tell(struct fabric *f, const struct group *g, enum report event, const char **why)
{
	uint64_t id = ++f->last_port_event;
	json_t *o = job_json(f, g, event);

	json_object_set_new(o, "id", json_integer((json_int_t)id));
	struct asked a = report_ask(f, "controller", id, o);
	*why = a.told ? no_answer : "there is no controller";
	return a.waits ? id : 0;
}

/* offload_ask() - All members of a group have called: give it its number, and ask the controller if it has to agree */
void offload_ask(struct fabric *f, struct group *g)
{
	group_number(g, ++f->last_job & PSN_MASK);
	if (g->ops->asks && !g->reason[0]) {
		const char *why;
		g->asked = job_tell(f, g, REPORT_JOB, &why);
		if (!g->asked)
			snprintf(g->reason, sizeof g->reason, "%s", why);
	}
	if (!g->asked)
		group_open_later(f, g);
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
	group_open_later(f, g);
	return NULL;
}

/* offload_refuse() - What the controller has planned for a job cannot be */
void offload_refuse(struct fabric *f, uint32_t job, const char *why)
{
	for (struct group *g = f->groups; g; g = g->next)
		if (job && g->id == job && g->state == GROUP_ASKING)
			snprintf(g->reason, sizeof g->reason, "%s", why);
}

/* offload_moved() - A job's tree cannot stay as it is: its members may ask for another */
void offload_moved(struct fabric *f, uint32_t job, const char *why)
{
	for (struct group *g = f->groups; g; g = g->next)
		if (g->id == job && g->state == GROUP_OPEN)
			offload_over(f, &g->member[0], why);
}

/* offload_jobs() - What a controller that has just come is told: the jobs that there are */
json_t *offload_jobs(struct fabric *f)
{
	json_t *events = json_array();

	for (struct group *g = f->groups; g; g = g->next) {
		if (!g->granted)
			continue;
		json_t *o = job_json(f, g, REPORT_JOB);
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
			group_open_later(f, g);
		}
}
