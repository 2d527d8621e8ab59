/* The configuration: JSON in, a fabric out.
 *
 * The testbed has validated what the user wrote.  Here it is checked once more,
 * so that no configuration can crash the daemon.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerator/accelerator.h"
#include "base/tap.h"
#include "base/lines.h"
#include "base/units.h"
#include "config/config.h"
#include "config/fields.h"
#include "config/params.h"
#include "config/transports.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "fast_path/flow_cache.h"
#include "link/cable.h"
#include "link/frame.h"
#include "link/params.h"
#include "link/port.h"
#include "link/scheduler.h"
#include "nic/nic.h"
#include "nic/params.h"
#include "switch/ovs.h"
#include "switch/params.h"
#include "switch/switch.h"
#include "transport/congestion.h"
#include "wire/roce.h"
#include "wire/telemetry.h"
#include "worker/worker.h"

#define PORTS_MAX 1024
#define SWITCHES_MAX 4096

static bool load_clock(struct fabric *f, const json_t *o)
{
	const char *mode = json_string_value(json_object_get(o, "mode"));

	f->clock.dilation = 1;
	if (mode && !strcmp(mode, "virtual"))
		return true;
	if (!mode || strcmp(mode, "real"))
		return config_fail(f, "clock: mode: virtual or real");
	f->clock.mode = CLOCK_REAL;
	f->clock.dilation = (int64_t)number_of(f, o, "dilation", 1, 1e9, REQUIRED);
	return !f->error[0];
}

static bool params_fail(struct fabric *f, const char *name, const char *wrong)
{
	return wrong ? config_fail(f, "%s: %s", name, wrong) : true;
}

/* `headroom_bytes` of a switch is one for all ports, or a list; `port_ecn` is a list of what `ecn` is, by port */
static bool load_port_params(struct fabric *f, struct port *p, const json_t *o)
{
	const json_t *headroom = json_object_get(o, "headroom_bytes"), *pfc = json_object_get(o, "pfc");

	if (json_is_array(headroom))
		headroom = json_array_get(headroom, p->number - 1u);
	if (headroom && (!json_is_number(headroom) || json_number_value(headroom) < 0 || json_number_value(headroom) > 1e12))
		return config_fail(f, "%s: headroom_bytes: from 0 to 1e12", p->node->name);
	p->base.headroom_bytes = headroom ? (uint64_t)json_number_value(headroom) : 0;
	json_t *own = json_array_get(json_object_get(o, "port_ecn"), p->number - 1u);
	if (own) {
		json_t *params = json_pack("{s:O}", "port_ecn", own);
		const char *wrong = port_params_set(&p->base, params);
		json_decref(params);
		if (wrong)
			return config_fail(f, "%s: port_ecn: %s", p->node->name, wrong);
	}
	if (pfc)
		p->base.pfc_rx = p->base.pfc_tx = json_is_true(pfc);
	p->p = p->base;
	return true;
}

static bool load_switch(struct fabric *f, struct sw *s, const json_t *o)
{
	const json_t *taps = json_object_get(o, "taps");
	size_t ports = json_array_size(taps);
	char error[256];

	if (!name_of(f, o, "name", s->n.name, sizeof s->n.name))
		return false;
	if (f->flow_cache && !name_of(f, o, "bridge", f->flow_cache->bridge[s - f->switches], BRIDGE_BYTES))
		return false;
	s->latency = time_of(f, o, "latency_ns", REQUIRED);
	s->n.cuts_through = json_is_true(json_object_get(o, "cut_through"));
	s->base = switch_plain;
	if (!json_object_get(o, "buffer_bytes"))
		return config_fail(f, "%s: buffer_bytes is needed", s->n.name);
	if (!params_fail(f, s->n.name, switch_params_set(&s->base, o)))
		return false;
	CLASSES_EACH(c)
		s->base.schedule.weight[c] = s->base.schedule.weight[c] ? s->base.schedule.weight[c] : 1;
	s->p = s->base;
	if (ports > PORTS_MAX)
		return config_fail(f, "%s: more than %d ports", s->n.name, PORTS_MAX);
	s->n.ports = lines_new(ports + 1, sizeof *s->n.ports);
	if (!s->n.ports)
		return config_fail(f, "out of memory");
	for (size_t i = 0; i < ports; i++) {
		struct port *p = &s->n.ports[i];
		const char *tap = json_string_value(json_array_get(taps, i));
		port_init(p, &s->n, (uint16_t)(i + 1));
		s->n.port_count++;
		if (!load_port_params(f, p, o))
			return false;
		if (!tap)
			return config_fail(f, "%s: taps: a list of interface names is needed", s->n.name);
		p->tap = tap_open(tap, error, sizeof error);
		/* All that Open vSwitch has may come out of one port at once (an incast of small frames) */
		if (p->tap < 0 || !tap_up(tap, 2 * PENDING_MAX, error, sizeof error))
			return config_fail(f, "%s", error);
		if (!watch_add(f, p->tap, WATCH_TAP, p))
			return false;
	}
	adaptive_init(s);
	return !f->error[0];
}

static bool load_nic(struct fabric *f, struct nic *n, const json_t *o)
{
	const char *mac = json_string_value(json_object_get(o, "mac")), *ip = json_string_value(json_object_get(o, "ip")),
		   *netdev = json_string_value(json_object_get(o, "netdev")),
		   *netns = json_string_value(json_object_get(o, "netns"));
	struct in_addr address;
	unsigned m[6];
	char error[256];

	if (!name_of(f, o, "name", n->n.name, sizeof n->n.name))
		return false;
	if (!mac || sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6)
		return config_fail(f, "%s: mac: six hex bytes with colons are needed", n->n.name);
	for (int i = 0; i < 6; i++)
		n->mac[i] = (uint8_t)m[i];
	if (!ip || inet_pton(AF_INET, ip, &address) != 1)
		return config_fail(f, "%s: ip: an IPv4 address is needed", n->n.name);
	n->ip = ntohl(address.s_addr);
	n->rank = (uint32_t)number_of(f, o, "rank", 0, NICS_MAX, REQUIRED);
	if (n != &f->nics[n->rank < f->nic_count ? n->rank : 0])
		return config_fail(f, "%s: rank: NICs must come in the order of ranks", n->n.name);
	n->mtu = (uint32_t)number_of(f, o, "mtu", 256, 9000, REQUIRED);
	static const char *const needed[] = {"pcie_rate_bps", "pcie_latency_ns", "post_ns",	 "tx_buffer_bytes", "ack_every",
					     "timeout_ns",    "retry",		 "rnr_timeout_ns", "rnr_retry"};
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		if (!json_object_get(o, needed[i]))
			return config_fail(f, "%s: %s is needed", n->n.name, needed[i]);
	n->base = (struct nic_params){.retry_most = RETRIES_MAX, .trimmed_dscp = DSCP_NONE, .trimmed_last_hop_dscp = DSCP_NONE, .data_dscp = 26, .ack_dscp = 48, .cnp_dscp = 48, .data_class = 3, .ack_class = 6,
				      .cnp_class = 6, .slow = 1, .reorder_packets = 1024, .sack_every = 16, .probes = true,
				      .cc = &cc_none, .engine_prefetch_bytes = 262144};
	if (!params_fail(f, n->n.name, nic_params_set(&n->base, o)) ||
	    !params_fail(f, n->n.name, transport_known(f, json_object_get(o, "transport"), &n->transport)) ||
	    !params_fail(f, n->n.name, n->base.timeout && n->base.rnr_timeout ? NULL : "timeout_ns, rnr_timeout_ns: more than 0"))
		return false;
	n->p = n->base;
	n->pressure_event = PS_NEVER;
	f->stamps = f->stamps || n->p.cc->stamped;
	n->n.ports = n->port;
	n->n.port_count = 1;
	n->worker = &f->workers[n->rank];
	*n->worker = (struct worker){.owner.ops = &worker_qp_ops, .f = f, .nic = n, .rank = n->rank, .listen_fd = -1, .fd = -1};
	for (int i = 0; i < 2; i++) {
		port_init(&n->port[i], &n->n, (uint16_t)(i + 1));
		if (!load_port_params(f, &n->port[i], o))
			return false;
		n->tx[i] = (struct tx){.buffer.ops = &nic_tx_buffer_ops, .nic = n, .port = &n->port[i]};
	}
	n->netdev = -1;
	if (netdev) {
		n->netdev = netns ? tap_open_in(netns, netdev, error, sizeof error)
				  : tap_open(netdev, error, sizeof error);
		if (n->netdev < 0)
			return config_fail(f, "%s", error);
		if (!watch_add(f, n->netdev, WATCH_NETDEV, n))
			return false;
	}
	return !f->error[0];
}

static struct port *load_end(struct fabric *f, const struct cable *c, const json_t *o)
{
	const char *node = json_string_value(json_array_get(o, 0));
	json_int_t port = json_integer_value(json_array_get(o, 1));
	struct port *p = node && port > 0 ? fabric_port(f, node, (uint32_t)port) : NULL;

	if (!p)
		config_fail(f, "%s: end: no such node or port", c->name);
	else if (p->cable || p->number == 0)
		config_fail(f, "%s: %s port %u has a cable already", c->name, p->node->name, p->number);
	return p;
}

static bool load_cable(struct fabric *f, struct cable *c, const json_t *o)
{
	if (!name_of(f, o, "name", c->name, sizeof c->name))
		return false;
	c->base.rate_bps = rate_of(f, o, "rate_bps");
	c->base.delay = time_of(f, o, "delay_ns", REQUIRED);
	c->base.up = true;
	if (!params_fail(f, c->name, cable_kept_set(&c->base, o)))
		return false;
	c->p = c->base;
	c->end[0] = load_end(f, c, json_object_get(o, "a"));
	c->end[1] = load_end(f, c, json_object_get(o, "b"));
	if (f->error[0])
		return false;
	if (c->end[0] == c->end[1])
		return config_fail(f, "%s: both ends in one port", c->name);
	for (int i = 0; i < 2; i++) {
		c->base_end[i] = c->end[i];
		c->end[i]->cable = c;
		c->end[i]->peer = c->end[!i];
	}
	return true;
}

static bool load_scale_up(struct fabric *f, struct scale_up *s, const json_t *o)
{
	const json_t *nics = json_object_get(o, "nics");

	s->rate_bps = rate_of(f, o, "rate_bps");
	s->delay = time_of(f, o, "delay_ns", REQUIRED);
	for (size_t i = 0; i < json_array_size(nics); i++) {
		const char *name = json_string_value(json_array_get(nics, i));
		struct port *p = name ? fabric_port(f, name, 1) : NULL;
		if (!p || p->node->kind != NODE_NIC || ((struct nic *)p->node)->scale_up)
			return config_fail(f, "scale_up: %s: no such NIC, or in two domains", name ? name : "?");
		struct nic *n = (struct nic *)p->node;
		n->scale_up = s;
		n->port[1].cable = &s->cable;
		n->n.port_count = 2;
	}
	return !f->error[0];
}

/* An array of the configuration: how many, and room for them */
static void *array_of(struct fabric *f, const json_t *config, const char *key, size_t each, uint32_t most, uint32_t *count)
{
	const json_t *list = json_object_get(config, key);
	size_t n = json_array_size(list);
	void *room = lines_new(n + 1, each);

	if ((list && !json_is_array(list)) || n > most)
		config_fail(f, "%s: a list of up to %u is needed", key, most);
	if (!room)
		config_fail(f, "out of memory");
	*count = f->error[0] ? 0 : (uint32_t)n;
	return room;
}

/* Switches, then NICs */
static bool load_nodes(struct fabric *f, const json_t *config)
{
	const json_t *o;
	size_t i;

	f->node_count = f->switch_count + f->nic_count;
	uint32_t mtu = 1500;
	json_array_foreach(json_object_get(config, "switches"), i, o) {
		struct sw *s = &f->switches[i];
		s->n.kind = NODE_SWITCH;
		s->n.ops = &switch_ops;
		s->n.schedule = &s->p.schedule;
		s->n.index = (uint32_t)i;
		f->nodes[i] = &s->n;
		if (!load_switch(f, s, o))
			return false;
	}
	json_array_foreach(json_object_get(config, "nics"), i, o) {
		struct nic *n = &f->nics[i];
		n->n.kind = NODE_NIC;
		n->n.ops = &nic_ops;
		n->n.index = f->switch_count + (uint32_t)i;
		f->nodes[n->n.index] = &n->n;
		if (!load_nic(f, n, o))
			return false;
		mtu = n->mtu > mtu ? n->mtu : mtu;
	}
	/* room for RoCE headers, or a VLAN tag on a kernel's frame, and the trailer */
	uint32_t room = mtu + ROCE_MAX_HEADER + OFFLOAD_BYTES + ICRC_BYTES + 32 + TRAILER_BYTES + 7;
	f->frame_room = (room + TELEMETRY_MAX_BYTES) & ~7u;
	f->turn_bytes = (room + TELEMETRY_BYTES(TURN_HOPS)) & ~7u;
	return true;
}

/* Cables, scale-up domains, and accelerators, which hang on their switches */
static bool load_links(struct fabric *f, const json_t *config)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(config, "cables"), i, o)
		if (!load_cable(f, &f->cables[i], o))
			return false;
	json_array_foreach(json_object_get(config, "scale_up"), i, o)
		if (!load_scale_up(f, &f->scale_ups[i], o))
			return false;
	json_array_foreach(json_object_get(config, "switches"), i, o) {
		const json_t *accelerator = json_object_get(o, "accelerator");
		struct accelerator *a = &f->accelerators[f->accelerator_count];
		if (!json_is_object(accelerator))
			continue;
		if (!accelerator_load(f, a, &f->switches[i], accelerator))
			return false;
		f->accelerator_count++;
		a->n.index = f->node_count;
		f->nodes[f->node_count++] = &a->n;
	}
	return true;
}

static void load_fast_path(struct fabric *f, const json_t *o)
{
	const char *folder = json_string_value(json_object_get(o, "ovs"));
	uint32_t sample = o ? (uint32_t)number_of(f, o, "sample", 1, 1e9, 1) : 0;

	if (folder && sample)
		f->flow_cache = flow_cache_new(folder, sample, f->switch_count);
}

/* config_load() - Build the fabric.  Return: false, with f->error set, if it cannot be */
bool config_load(struct fabric *f, json_t *config)
{
	f->ovs = ovs_new();
	f->syncs = syncs_new();
	if (!name_of(f, config, "fabric", f->id, sizeof f->id) || !load_clock(f, json_object_get(config, "clock")))
		return false;
	f->seed = (uint64_t)number_of(f, config, "seed", 0, 9e15, 0);
	f->patience_ns = (int64_t)(number_of(f, config, "patience_ms", 1, 1e9, 60000) * 1e6);
	f->worker_bytes = (uint64_t)number_of(f, config, "worker_memory_bytes", 1, (double)REGION_BYTES_MAX, (double)REGION_BYTES_MAX);
	f->ovs->patience.pid = (int)number_of(f, config, "ovs_pid", 0, 1 << 30, 0);
	f->reaction = f->reaction_base = time_of(f, json_object_get(config, "control"), "reaction_ns", 1e6);
	f->tells_rates = json_is_true(json_object_get(json_object_get(config, "control"), "rates"));
	f->switches = array_of(f, config, "switches", sizeof *f->switches, SWITCHES_MAX, &f->switch_count);
	f->nics = array_of(f, config, "nics", sizeof *f->nics, NICS_MAX, &f->nic_count);
	f->cables = array_of(f, config, "cables", sizeof *f->cables, SWITCHES_MAX * 16, &f->cable_count);
	f->scale_ups = array_of(f, config, "scale_up", sizeof *f->scale_ups, NICS_MAX, &f->scale_up_count);
	f->workers = calloc(f->nic_count + 1, sizeof *f->workers);
	f->nodes = calloc(2 * f->switch_count + f->nic_count + f->scale_up_count + 1, sizeof(struct node *));
	f->accelerators = lines_new(f->switch_count + 1, sizeof *f->accelerators);
	if (f->error[0] || !f->workers || !f->nodes || !f->accelerators)
		return config_fail(f, "out of memory");
	for (uint32_t k = 0; k < f->nic_count; k++)
		f->nics[k].netdev = f->workers[k].fd = f->workers[k].listen_fd = -1;

	load_fast_path(f, json_object_get(config, "fast_path"));
	if (!load_nodes(f, config) || !load_links(f, config))
		return false;
	scale_ups_init(f);
	for (uint32_t k = 0; k < f->node_count; k++)
		for (uint16_t i = 0; i < f->nodes[k]->port_count; i++)
			f->nodes[k]->ports[i].index = f->port_count++;
	for (uint32_t k = 0; k < f->cable_count; k++)
		cable_restart(f, &f->cables[k]);
	for (uint32_t k = 0; k < f->switch_count; k++)
		buffer_changed(f, &f->switches[k]);
	return ovs_open(f, json_string_value(json_object_get(config, "fence_tap"))) && !f->error[0];
}

