/* Nodes and ports: made, and found by their names. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/params.h"
#include "link/port.h"
#include "link/scheduler.h"

/* port_init() - A port of a node that has no cable yet */
void port_init(struct port *p, struct node *n, uint16_t number)
{
	*p = (struct port){.node = n, .number = number, .tap = -1, .pause_end_event = PS_NEVER};
	p->base.pfc_rx = p->base.pfc_tx = true;
	CLASSES_EACH(c)
		p->tc[c].watchdog_from = PS_NEVER;
	scheduler_reset(p);
}

/* fabric_port() - The port of that number of the node of that name, or NULL */
struct port *fabric_port(struct fabric *f, const char *node, uint32_t number)
{
	for (uint32_t i = 0; i < f->node_count; i++) {
		struct node *n = f->nodes[i];
		if (n && !strcmp(n->name, node))
			return number >= 1 && number <= n->port_count ? &n->ports[number - 1] : NULL;
	}
	return NULL;
}

/* fabric_port_named() - The port called NODE:NUMBER, or NULL */
struct port *fabric_port_named(struct fabric *f, const char *name)
{
	const char *colon = name ? strrchr(name, ':') : NULL;
	char node[NAME_BYTES];
	unsigned number;

	if (!colon || (size_t)(colon - name) >= sizeof node || sscanf(colon + 1, "%u", &number) != 1)
		return NULL;
	memcpy(node, name, (size_t)(colon - name));
	node[colon - name] = '\0';
	return fabric_port(f, node, number);
}
