/* The whole fabric: its rooms are joined at the beginning, and all of it is given back at the end. */
#include <stdlib.h>
#include <unistd.h>

#include "accelerator/accelerator.h"
#include "cc/puller.h"
#include "control/control.h"
#include "control/sample.h"
#include "datagram/datagram.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "fast_path/flow_cache.h"
#include "fault/fault.h"
#include "link/cable.h"
#include "link/capture.h"
#include "link/frame.h"
#include "link/port.h"
#include "link/ways.h"
#include "nic/nic.h"
#include "offload/offload.h"
#include "switch/adaptive.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "transport/qp.h"
#include "worker/worker.h"
#include "windows.h"
#include "world.h"

static const struct nic_receivers receivers = {.transport = transport_receive, .datagram = datagram_receive, .trimmed = trimmed_receive, .offload = offload_receive, .domain = offload_domain};

/* world_join() - Who does what rooms below have declared: before anything else */
void world_join(struct fabric *f)
{
	f->listener = &control_listener;
	f->impairment = &fault_impairment;
	f->receivers = &receivers;
	f->transports = &fault_transports;
	f->services = &offload_services;
}

static void node_free(struct node *n)
{
	for (uint16_t k = 0; k < n->port_count; k++) {
		struct port *p = &n->ports[k];
		for (int why = 0; why < DROPS; why++)
			free(p->last_drop[why]);
		free(p->credits);
		free(p->retry);
		if (p->tap >= 0)
			close(p->tap);
	}
}

static void nic_free(struct nic *n)
{
	node_free(&n->n);
	for (uint32_t k = 0; k < n->qp_count; k++)
		qp_release(n->qps[k]);
	free(n->qps);
	puller_release(n);
	free(n->loop);
	for (struct nic_transport *t; (t = n->transports); free(t))
		n->transports = t->next;
	if (n->netdev >= 0)
		close(n->netdev);
}

/* fabric_free() - Give everything back (TAP devices go with their descriptors) */
void fabric_free(struct fabric *f)
{
	struct event e;

	for (struct heap *from; event_next(f, &from) && event_pop(from, &e);)
		if (event_kind(&e) == EV_DOORBELL)
			post_free(e.a);
	captures_close(f);
	sample_end(f);
	offload_free(f);
	for (uint32_t i = 0; i < f->switch_count; i++) {
		node_free(&f->switches[i].n);
		adaptive_free(f->switches[i].adaptive);
		free(f->switches[i].n.ports);
	}
	workers_close(f);
	for (uint32_t i = 0; i < f->nic_count; i++) {
		f->nics[i].n.port_count = f->nics[i].n.ports ? 2 : 0;
		nic_free(&f->nics[i]);
	}
	faults_close(f); /* whose flows own queue pairs */
	for (uint32_t i = 0; i < f->accelerator_count; i++) {
		node_free(&f->accelerators[i].n);
		accelerator_free(&f->accelerators[i]);
	}
	ovs_close(f);
	flow_cache_free(f);
	for (uint32_t i = 0; i < f->switch_count; i++)
		ways_free(&f->switches[i].n);
	control_close(f);
	frames_close(f);
	while (f->changes) {
		struct change *c = f->changes;
		f->changes = c->next;
		free(c);
	}
	syncs_forget(f);
	free(f->syncs);
	free(f->turns);
	f->syncs = NULL;
	division_free(f);
	events_free(&f->heap);
	free(f->nodes);
	free(f->accelerators);
	free(f->switches);
	free(f->nics);
	free(f->workers);
	free(f->cables);
	for (uint32_t i = 0; i < f->scale_up_count; i++)
		node_free(&f->scale_ups[i].n);
	free(f->scale_ups);
	json_decref(f->known_transports);
	json_decref(f->named_transports);
	json_decref(f->config);
}
