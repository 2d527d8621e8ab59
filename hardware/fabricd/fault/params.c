/* Faults that override parameters, and faults that swap cables
 *
 * Theory of Operation
 *
 * A fault's values are laid over the configured ones, those of several faults in the
 * order in which they were switched on.  The result is what is in force.  Whenever a
 * fault goes on or off, it is worked out anew, and the thing is told.
 *
 * Swaps likewise: from the ends that the cables were configured with, the swaps that are
 * on exchange far ends one after the other.  A cable whose ends are then not what they
 * were was unplugged, and the frames on it are lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "config/params.h"
#include "engine/fabric.h"
#include "fault/fault.h"
#include "link/cable.h"
#include "link/params.h"
#include "link/pfc.h"
#include "link/port.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "switch/params.h"
#include "switch/switch.h"
#include "transport/qp.h"
#include "worker/worker.h"

/* Lay over @params, of @object, what those that are on say
 * @operators:	only what an operator has configured, no fault
 */
static void fold_some(struct fabric *f, enum params_of of, const void *object, void *params, bool operators)
{
	uint64_t after = 0;

	for (struct fault *x; (x = fault_first_on(f, FAULT_PARAMS, after)); after = x->order) {
		if (x->of != of || x->object != object || (operators && !json_is_true(json_object_get(x->request, "operator"))))
			continue;
		switch (x->of) {
		case OF_CABLE: cable_params_set(params, x->values); break;
		case OF_PORT: port_params_set(params, x->values); break;
		case OF_SWITCH: switch_params_set(params, x->values); break;
		case OF_NIC: nic_params_set(params, x->values); break;
		case OF_CONTROL: *(ps_t *)params = (ps_t)(json_number_value(json_object_get(x->values, "reaction_ns")) * 1000); break;
		}
	}
}

static void fold(struct fabric *f, enum params_of of, const void *object, void *params)
{
	fold_some(f, of, object, params, false);
}

/* A transport over what the NIC is configured with, and faults over both */
static void lay(struct fabric *f, struct nic *n, struct nic_transport *t)
{
	t->p = n->base;
	nic_params_set(&t->p, t->transport);
	fold(f, OF_NIC, n, &t->p);
	f->stamps = f->stamps || t->p.cc->stamped;
}

/* params_of_transport() - What a queue pair of a NIC sends or answers by; NULL: by what its NIC has */
static const struct nic_params *params_of_transport(struct fabric *f, struct nic *n, const json_t *transport)
{
	struct nic_transport *t = n->transports;

	if (!transport)
		return &n->p;
	while (t && t->transport != transport)
		t = t->next;
	if (!t) {
		t = calloc(1, sizeof *t);
		if (!t)
			abort();
		*t = (struct nic_transport){.next = n->transports, .transport = transport};
		n->transports = t;
		lay(f, n, t);
	}
	return &t->p;
}

const struct transports fault_transports = {.params = params_of_transport};

static json_t *ports_params_json(struct fabric *f, bool meant)
{
	json_t *ports = json_object();

	for (uint32_t k = 0; k < f->switch_count + f->nic_count; k++)
		for (uint16_t i = 0; i < f->nodes[k]->port_count; i++) {
			const struct port *p = &f->nodes[k]->ports[i];
			struct port_params params = meant ? p->base : p->p;
			char name[NAME_BYTES + 8];
			if (meant)
				fold_some(f, OF_PORT, p, &params, true);
			snprintf(name, sizeof name, "%s:%u", p->node->name, p->number);
			json_object_set_new(ports, name, port_params_json(&params));
		}
	return ports;
}

/* params_json() - The parameters of everything
 * @meant:	as configured by file and operator; otherwise as they are, faults included
 */
json_t *params_json(struct fabric *f, bool meant)
{
	json_t *switches = json_object(), *nics = json_array(), *cables = json_object();

	for (uint32_t k = 0; k < f->switch_count; k++) {
		const struct sw *s = &f->switches[k];
		struct switch_params params = meant ? s->base : s->p;
		if (meant)
			fold_some(f, OF_SWITCH, s, &params, true);
		json_object_set_new(switches, s->n.name, switch_params_json(&params));
	}
	for (uint32_t k = 0; k < f->nic_count; k++) {
		const struct nic *n = &f->nics[k];
		struct nic_params params = meant ? n->base : n->p;
		if (meant)
			fold_some(f, OF_NIC, n, &params, true);
		json_array_append_new(nics, nic_params_json(&params));
	}
	for (uint32_t k = 0; k < f->cable_count; k++) {
		const struct cable *c = &f->cables[k];
		struct cable_params params = meant ? c->base : c->p;
		if (meant)
			fold_some(f, OF_CABLE, c, &params, true);
		json_object_set_new(cables, c->name, cable_params_json(&params));
	}
	ps_t reaction = meant ? f->reaction_base : f->reaction;
	if (meant)
		fold_some(f, OF_CONTROL, f, &reaction, true);
	return json_pack("{s:o, s:o, s:o, s:o, s:{s:o}}", "switches", switches, "ports", ports_params_json(f, meant), "nics",
			 nics, "cables", cables, "control", "reaction_ns", ns_json(reaction));
}

/* params_of_cable() - What is in force of a cable, over its base */
void params_of_cable(struct fabric *f, const struct cable *cable, struct cable_params *params)
{
	fold(f, OF_CABLE, cable, params);
}

/* params_in_force() - A fault has gone on or off */
void params_in_force(struct fabric *f, struct fault *x)
{
	switch (x->of) {
	case OF_CABLE: cable_in_force(f, x->object); break;
	case OF_PORT: {
		struct port *p = x->object;
		p->p = p->base;
		fold(f, OF_PORT, p, &p->p);
		pfc_changed(f, p);
		break;
	}
	case OF_SWITCH: {
		struct sw *s = x->object;
		struct watchdog_params before = s->p.watchdog;
		s->p = s->base;
		fold(f, OF_SWITCH, s, &s->p);
		if (before.on != s->p.watchdog.on || before.drop != s->p.watchdog.drop ||
		    before.detect != s->p.watchdog.detect || before.restore != s->p.watchdog.restore)
			watchdog_changed(f, s);
		buffer_changed(f, s);
		break;
	}
	case OF_NIC: {
		struct nic *n = x->object;
		struct nic_params before = n->p;
		n->p = n->base;
		fold(f, OF_NIC, n, &n->p);
		for (size_t k = 0; k < 2; k++) /* queue pairs that are made later have keys of later */
			for (uint32_t i = 0; i < n->qp_count && n->p.keys_stale[k] != before.keys_stale[k]; i++)
				n->qps[i]->keys_stale[k] = n->p.keys_stale[k];
		for (struct nic_transport *t = n->transports; t; t = t->next)
			lay(f, n, t);
		f->stamps = f->stamps || n->p.cc->stamped;
		nic_params_changed(f, n);
		clock_worker_changed(f, n->worker);
		if (!n->p.frozen)
			worker_thaw(f, n->worker);
		qps_params_changed(f, n);
		break;
	}
	case OF_CONTROL:
		f->reaction = f->reaction_base;
		fold(f, OF_CONTROL, f, &f->reaction);
		break;
	}
}

static struct nic *nic_named(struct fabric *f, const json_t *v)
{
	json_int_t rank = json_integer_value(v);

	return json_is_integer(v) && rank >= 0 && rank < f->nic_count ? &f->nics[rank] : NULL;
}

/* params_load() - Take in what to lay over what
 * Return: NULL, or what is wrong
 */
const char *params_load(struct fabric *f, struct fault *x, const json_t *request)
{
	const char *cable = json_string_value(json_object_get(request, "cable")),
		   *port = json_string_value(json_object_get(request, "port")),
		   *name = json_string_value(json_object_get(request, "switch"));
	const json_t *nic = json_object_get(request, "nic");

	x->values = json_object_get(x->request, "values");
	if (!json_is_object(x->values))
		return "inject: values: an object is needed";
	if (cable) {
		struct cable *c = fabric_cable(f, cable);
		struct cable_params trial = c ? c->p : (struct cable_params){0};
		x->of = OF_CABLE;
		x->object = c;
		return c ? cable_params_set(&trial, x->values) : "inject: cable: no cable of that name";
	}
	if (port) {
		struct port *p = fabric_port_named(f, port);
		struct port_params trial = p ? p->p : (struct port_params){0};
		x->of = OF_PORT;
		x->object = p;
		return p && p->cable ? port_params_set(&trial, x->values) : "inject: port: no such port (NODE:PORT)";
	}
	if (name) {
		struct port *p = fabric_port(f, name, 1);
		struct sw *s = p && p->node->kind == NODE_SWITCH ? (struct sw *)p->node : NULL;
		struct switch_params trial = s ? s->p : switch_plain;
		x->of = OF_SWITCH;
		x->object = s;
		return s ? switch_params_set(&trial, x->values) : "inject: switch: no switch of that name";
	}
	if (nic) {
		struct nic *n = nic_named(f, nic);
		struct nic_params trial = n ? n->p : (struct nic_params){0};
		x->of = OF_NIC;
		x->object = n;
		return n ? nic_params_set(&trial, x->values) : "inject: nic: no such rank";
	}
	if (json_object_get(request, "control")) {
		const json_t *reaction = json_object_get(x->values, "reaction_ns");
		double ns = json_number_value(reaction);
		x->of = OF_CONTROL;
		x->object = f;
		return json_is_number(reaction) && ns >= 0 && ns <= 1e12 ? NULL : "inject: reaction_ns: from 0 to 1e12";
	}
	return "inject: cable, port, switch, nic or control is needed";
}

/* swap_load() - Take in which two cables change their far ends */
const char *swap_load(struct fabric *f, struct fault *x, const json_t *request)
{
	const json_t *names = json_object_get(request, "cables");

	for (size_t i = 0; i < 2; i++) {
		const char *name = json_string_value(json_array_get(names, i));
		x->swap[i] = name ? fabric_cable(f, name) : NULL;
		if (!x->swap[i])
			return "inject: cables: the names of two cables are needed";
	}
	return x->swap[0] == x->swap[1] ? "inject: cables: twice the same" : NULL;
}

/* swaps_in_force() - A swap has gone on or off: plug the cables in as it now says */
void swaps_in_force(struct fabric *f)
{
	uint64_t after = 0;

	for (uint32_t i = 0; i < f->cable_count; i++)
		memcpy(f->cables[i].wanted, f->cables[i].base_end, sizeof f->cables[i].wanted);
	for (struct fault *x; (x = fault_first_on(f, FAULT_SWAP, after)); after = x->order) {
		struct port **a = &x->swap[0]->wanted[1], **b = &x->swap[1]->wanted[1], *was = *a;
		*a = *b;
		*b = was;
	}
	for (uint32_t i = 0; i < f->cable_count; i++) {
		struct cable *c = &f->cables[i];
		if (memcmp(c->wanted, c->end, sizeof c->end))
			cable_unplug(f, c);
	}
	for (uint32_t i = 0; i < f->cable_count; i++) {
		struct cable *c = &f->cables[i];
		if (memcmp(c->wanted, c->end, sizeof c->end))
			cable_plug(f, c);
	}
}
