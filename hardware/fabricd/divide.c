/* How a fabric is divided, and how far its partitions may run ahead of each other
 *
 * Theory of Operation
 *
 * What is near each other stays together: a switch and the NICs at it, and nodes with a cable of no length between them (the
 * bridge in a NIC, an accelerator).  Such groups go into partitions in the order of their nodes, as many NICs into each;
 * switches without NICs are spread.
 *
 * From one partition to another leads a cable, or a scale-up domain, and nothing sooner than its delay.  What is real must not
 * be met too late either: a worker that is woken acts after the cost of a post and the PCIe latency, a frame that Open vSwitch
 * gets is waited for when it has come in and gone through the switch, and a look at credits is an event of all the fabric.
 */
#include <stdlib.h>

#include "accelerator/accelerator.h"
#include "base/units.h"
#include "config/fields.h"
#include "engine/division.h"
#include "engine/fabric.h"
#include "link/cable.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "switch/switch.h"
#include "windows.h"

/* Groups of nodes, as trees: each node names another of its group, the first one itself */
static uint32_t first_of(uint32_t *group, uint32_t node)
{
	while (group[node] != node)
		node = group[node] = group[group[node]];
	return node;
}

static void together(uint32_t *group, uint32_t a, uint32_t b)
{
	uint32_t x = first_of(group, a), y = first_of(group, b);

	group[x > y ? x : y] = x < y ? x : y;
}

static void join_ends(uint32_t *group, const struct cable *c)
{
	const struct node *a = c->end[0]->node, *b = c->end[1]->node;

	if (!c->base.delay || a->kind != NODE_SWITCH || b->kind != NODE_SWITCH)
		together(group, a->index, b->index);
}

/* A scale-up domain's switch is with the first of its NICs */
static void join_domains(const struct fabric *f, uint32_t *group)
{
	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct scale_up *s = f->nics[i].scale_up;
		if (s && (!s->delay || first_of(group, s->n.index) == s->n.index))
			together(group, f->nics[i].n.index, s->n.index);
	}
}

/* Each node's partition: by the NICs of groups before its own, and of groups without NICs by their number */
static uint32_t deal(const struct fabric *f, uint32_t *group, uint32_t nodes, uint32_t wanted, uint8_t *of)
{
	uint32_t *nics = calloc(nodes, sizeof *nics), with = 0, without = 0, before = 0, bare = 0;

	if (!nics)
		abort();
	for (uint32_t i = 0; i < f->nic_count; i++)
		nics[first_of(group, f->nics[i].n.index)]++;
	for (uint32_t i = 0; i < nodes; i++) {
		with += nics[i] > 0;
		without += group[i] == i && !nics[i];
	}
	uint32_t count = wanted < with ? wanted : with;
	for (uint32_t i = 0; count && i < nodes; i++) {
		if (group[i] != i)
			continue;
		uint64_t place = nics[i] ? (uint64_t)before * count / f->nic_count : (uint64_t)bare++ * count / without;
		of[i] = (uint8_t)place;
		before += nics[i];
	}
	for (uint32_t i = 0; i < nodes; i++)
		of[i] = of[first_of(group, i)];
	free(nics);
	return count;
}

/* Divide a fabric into so many partitions, or as many as it has parts of its own
 * @order:	Draws in which order they run; 0: as they are numbered
 */
static void divide(struct fabric *f, uint32_t wanted, uint64_t order)
{
	uint32_t nodes = f->node_count + f->scale_up_count;
	uint32_t *group = calloc(nodes + 1, sizeof *group);
	struct division *d = aligned_alloc(LINE_BYTES, sizeof *d);

	if (!group || !d)
		abort();
	*d = (struct division){.order = order, .lookahead = -1, .of = calloc(nodes + 1, 1)};
	if (!d->of)
		abort();
	for (uint32_t i = 0; i < nodes; i++)
		group[i] = i;
	for (uint32_t i = 0; i < f->cable_count; i++)
		join_ends(group, &f->cables[i]);
	for (uint32_t i = 0; i < f->accelerator_count; i++)
		join_ends(group, &f->accelerators[i].cable);
	join_domains(f, group);
	d->count = deal(f, group, nodes, wanted, d->of);
	free(group);
	f->division = d;
	if (d->count < 2)
		division_free(f);
}

/* division_load() - `partitions` of the configuration; left out: by the number of NICs
 * Return: false if it is wrong
 */
bool division_load(struct fabric *f)
{
	const json_t *clock = json_object_get(f->config, "clock");
	uint32_t wanted = (uint32_t)number_of(f, clock, "partitions", 1, PARTITIONS_MAX, 1);
	uint64_t order = (uint64_t)number_of(f, clock, "partition_order", 0, 9e15, 0);

	if (!f->error[0] && wanted > 1 && f->clock.mode == CLOCK_VIRTUAL)
		divide(f, wanted, order);
	return !f->error[0];
}

void division_free(struct fabric *f)
{
	struct division *d = f->division;

	if (!d)
		return;
	for (uint32_t i = 0; i < d->count; i++)
		events_free(&d->partition[i].heap);
	free(d->of);
	free(d->told);
	free(d);
	f->division = NULL;
}

static ps_t sooner(ps_t a, ps_t b)
{
	return a < b ? a : b;
}

static ps_t by_cable(const struct fabric *f, const struct cable *c, ps_t least)
{
	const uint8_t *of = f->division->of;
	const struct port *a = c->end[0], *b = c->end[1];

	if (of[a->node->index] != of[b->node->index])
		least = sooner(least, c->p.delay);
	for (int i = 0; i < 2; i++)
		if (c->end[i]->node->kind == NODE_SWITCH)
			least = sooner(least, c->p.delay + ((const struct sw *)c->end[i]->node)->latency);
	if (c->p.credit_classes)
		least = sooner(least, c->p.resync ? c->p.resync : pfc_time(a, PFC_QUANTA / 2));
	return least;
}

/* division_lookahead() - How long what happens in one partition takes to reach another, at least, or somebody real */
ps_t division_lookahead(const struct fabric *f)
{
	ps_t least = PS_NEVER;

	for (uint32_t i = 0; i < f->cable_count; i++)
		least = by_cable(f, &f->cables[i], least);
	for (uint32_t i = 0; i < f->accelerator_count; i++)
		least = by_cable(f, &f->accelerators[i].cable, least);
	for (uint32_t i = 0; i < f->nic_count; i++) {
		const struct nic *n = &f->nics[i];
		least = sooner(least, n->p.post + n->p.pcie_latency);
		if (n->scale_up)
			least = sooner(least, n->scale_up->delay);
	}
	return least;
}
