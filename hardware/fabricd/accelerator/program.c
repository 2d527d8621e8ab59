/* The programs of an accelerator: which job has how many of its slots, and who adds up there. */
#include <stdlib.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "accelerator/program.h"
#include "base/json.h"
#include "engine/fabric.h"
#include "switch/switch.h"
#include "wire/roce.h"

struct program *program_of(const struct accelerator *a, uint32_t job)
{
	struct program *p = a->programs[job % PROGRAM_CHAINS];

	while (p && p->job != job)
		p = p->next;
	return p;
}

/* slots_left() - How many slots a job may still get: those that have leaked are gone */
uint32_t slots_left(const struct accelerator *a)
{
	uint32_t leaked = a->sw->p.slots_leaked;

	return a->slots_free > leaked ? a->slots_free - leaked : 0;
}

/* slot_held() - Is a slot of a job still its own?  What leaks beyond the free ones the newest jobs lose, from the end */
bool slot_held(const struct accelerator *a, const struct program *p, uint32_t slot)
{
	uint32_t leaked = a->sw->p.slots_leaked, before = a->slots_free;

	if (leaked <= before)
		return slot < p->slots;
	for (uint32_t i = 0; i < PROGRAM_CHAINS; i++)
		for (const struct program *q = a->programs[i]; q; q = q->next)
			before += q->job > p->job ? q->slots : 0;
	uint32_t lost = leaked > before ? leaked - before : 0;
	return slot < (lost < p->slots ? p->slots - lost : 0);
}

void program_free(struct program *p)
{
	free(p->sums);
	free(p);
}

static const char *load_children(struct program *p, const json_t *list)
{
	size_t i;
	const json_t *v;

	json_array_foreach(list, i, v) {
		double ip = number_in(v, "ip", 1, 4294967295.0);
		if (ip < 0)
			return "accelerator_program: children: an ip is needed";
		p->child[i].ip = (uint32_t)ip;
		p->child[i].accelerator = json_is_true(json_object_get(v, "accelerator"));
	}
	return NULL;
}

/* accelerator_program() - The controller gives a job slots of a switch's accelerator, and says who adds up there
 * Return: NULL, or what is wrong
 */
const char *accelerator_program(struct fabric *f, const json_t *request)
{
	const char *name = json_string_value(json_object_get(request, "switch"));
	const json_t *children = json_object_get(request, "children"), *parent = json_object_get(request, "parent");
	double job = number_in(request, "job", 1, PSN_MASK), slots = number_in(request, "slots", 1, 65535),
	       group = number_in(request, "group_ip", 1, 4294967295.0);
	bool shared = json_is_true(json_object_get(request, "shared"));
	struct accelerator *a = NULL;

	for (uint32_t i = 0; name && i < f->accelerator_count; i++)
		if (!strcmp(f->accelerators[i].sw->n.name, name))
			a = &f->accelerators[i];
	if (!a)
		return "accelerator_program: switch: none of that name has an accelerator";
	if (job < 0 || (slots < 0 && !shared) || group < 0)
		return "accelerator_program: job, slots (unless shared) and group_ip are needed";
	if (shared)
		return pool_program(a, (uint32_t)job, request);
	if (program_of(a, (uint32_t)job))
		return "accelerator_program: the job has a program there already";
	if (!json_array_size(children) || json_array_size(children) > a->fan_in)
		return "accelerator_program: children: from 1 to as many as the accelerator's bitmap has bits";
	if (slots > slots_left(a))
		return "accelerator_program: slots: fewer are free";
	struct program *p = calloc(1, sizeof *p + (size_t)slots * sizeof(struct slot));
	int32_t *sums = calloc((size_t)slots * 2 * a->elements, sizeof *sums);
	if (!p || !sums)
		abort();
	p->job = (uint32_t)job;
	p->slots = (uint32_t)slots;
	p->group_ip = (uint32_t)group;
	p->children = (uint32_t)json_array_size(children);
	p->sums = sums;
	const char *wrong = load_children(p, children);
	if (!wrong && parent) {
		double ip = number_in(parent, "ip", 1, 4294967295.0), child = number_in(parent, "child", 0, FAN_IN_MAX - 1);
		if (ip < 0 || child < 0) {
			wrong = "accelerator_program: parent: ip and child are needed";
		} else {
			p->parent_ip = (uint32_t)ip;
			p->parent_child = (uint16_t)child;
		}
	}
	if (wrong) {
		program_free(p);
		return wrong;
	}
	for (uint32_t i = 0; i < p->slots; i++)
		for (int v = 0; v < 2; v++) {
			p->slot[i].sum[v] = sums + (size_t)(2 * i + (uint32_t)v) * a->elements;
			p->slot[i].use[v] = (uint32_t)(v - 2) & PSN_MASK; /* of before the first */
		}
	p->next = a->programs[p->job % PROGRAM_CHAINS];
	a->programs[p->job % PROGRAM_CHAINS] = p;
	a->slots_free -= p->slots;
	uint32_t used = a->slots - pool_slots(a) - a->slots_free;
	a->slots_used_max = used > a->slots_used_max ? used : a->slots_used_max;
	return NULL;
}

/* accelerators_release() - A job is over: its slots are free again, everywhere */
void accelerators_release(struct fabric *f, uint32_t job)
{
	for (uint32_t i = 0; i < f->accelerator_count; i++) {
		struct accelerator *a = &f->accelerators[i];
		pool_release(a, job);
		for (struct program **at = &a->programs[job % PROGRAM_CHAINS], *p; (p = *at);) {
			if (p->job != job) {
				at = &p->next;
				continue;
			}
			*at = p->next;
			a->slots_free += p->slots;
			program_free(p);
		}
	}
}
