/* NICs: transmit buffer, PCIe, scale-up domain, kernel interface
 *
 * Theory of Operation
 *
 * Queue pairs and offloads that have something to send take turns (struct tx), in one
 * round for the cable and one for the scale-up domain.  While the transmit buffer has
 * room, the next of them builds one packet.  Its payload is fetched over PCIe (a serial
 * link; each packet pays its latency, but packets overlap), then it joins the port's
 * queue.  On the scale-up domain payload comes from the GPU's memory, without a fetch.
 *
 * A packet that comes in is RoCEv2 for a queue pair or an offload here, or it is for
 * the host's kernel (real clock only: a TAP in the host's network namespace).  Any
 * other is dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/units.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/port.h"
#include "nic/nic.h"
#include "wire/roce.h"

#define NETDEV_QUEUE_BYTES 524288 /* beyond this the kernel's queue has to wait */

static ps_t transfer(uint32_t bytes, int64_t bps)
{
	return ((ps_t)bytes * 8 * PS_PER_S + bps / 2) / bps;
}

/* Likewise over a NIC's PCIe; packets are nearly always of the same length as the one before */
static ps_t pcie_transfer(struct nic *n, uint32_t bytes)
{
	struct pcie_took *last = &n->pcie_took;

	if (last->bytes != bytes || last->bps != n->p.pcie_bps)
		*last = (struct pcie_took){.bytes = bytes, .bps = n->p.pcie_bps, .ps = transfer(bytes, n->p.pcie_bps)};
	return last->ps;
}

/* pcie_write() - When @bytes that the NIC writes from now on are visible in memory */
ps_t pcie_write(struct nic *n, ps_t now, uint32_t bytes)
{
	n->pcie_write_bytes += bytes;
	ps_t start = n->pcie_rx_free > now ? n->pcie_rx_free : now;

	n->pcie_rx_free = start + pcie_transfer(n, bytes);
	return n->pcie_rx_free + n->p.pcie_latency;
}

/* pcie_read_time() - How long @bytes would take that the NIC asked for now */
ps_t pcie_read_time(const struct nic *n, ps_t now, uint32_t bytes)
{
	ps_t backlog = n->pcie_tx_free > now ? n->pcie_tx_free - now : 0;

	return backlog + transfer(bytes, n->p.pcie_bps) + n->p.pcie_latency;
}

/* pcie_read() - When @bytes that the NIC asks for now are there */
ps_t pcie_read(struct nic *n, ps_t now, uint32_t bytes)
{
	n->pcie_read_bytes += bytes;
	ps_t start = n->pcie_tx_free > now ? n->pcie_tx_free : now;

	n->pcie_tx_free = start + pcie_transfer(n, bytes);
	return n->pcie_tx_free + n->p.pcie_latency;
}

static void into_round(struct fabric *f, struct tx *tx, struct tx_source *s)
{
	if (!s->ops->has_packet(f, s)) {
		s->ops->none(f, s);
		return;
	}
	s->ready = true;
	s->next = NULL;
	if (tx->ready_tail)
		tx->ready_tail->next = s;
	else
		tx->ready_head = s;
	tx->ready_tail = s;
}

/* nic_tx_ready() - Somebody may have something to send: put it into the round */
void nic_tx_ready(struct fabric *f, struct tx *tx, struct tx_source *s)
{
	if (!s->ready)
		into_round(f, tx, s);
	nic_tx_kick(f, tx);
}

/* nic_tx_forget() - Take somebody out of the round */
void nic_tx_forget(struct tx *tx, const struct tx_source *s)
{
	struct tx_source **at = &tx->ready_head, *last = NULL;

	while (*at && *at != s) {
		last = *at;
		at = &(*at)->next;
	}
	if (!*at)
		return;
	*at = s->next;
	if (tx->ready_tail == s)
		tx->ready_tail = last;
}

/* nic_tx_kick() - Fetch packets while the transmit buffer has room */
void nic_tx_kick(struct fabric *f, struct tx *tx)
{
	struct nic *n = tx->nic;

	while (tx->ready_head && tx->used_bytes < n->p.tx_buffer_bytes) {
		struct tx_source *s = tx->ready_head;
		tx->ready_head = s->next;
		if (!tx->ready_head)
			tx->ready_tail = NULL;
		s->ready = false;
		if (!s->ops->has_packet(f, s)) {
			s->ops->none(f, s);
			continue;
		}
		struct frame *fr = frame_small(f);
		uint32_t payload = s->ops->build(f, s, fr);
		fr->id = frame_number(&n->n);
		fr->tx_buffer = &tx->buffer;
		tx->used_bytes += fr->len;
		bool scale_up = tx == &n->tx[1];
		ps_t t = scale_up || payload == IN_NIC ? f->clock.now : pcie_read(n, f->clock.now, payload);
		t = s->fetched = t > s->fetched ? t : s->fetched; /* what is in the NIC overtakes nothing of its own that is not */
		event_add(f, t, EV_FETCHED, n->n.index, scale_up, 0, fr->id, fr, 0);
		into_round(f, tx, s);
	}
}

/* nic_fetched() - A frame is in the transmit buffer, whole: what is for its own NIC does not leave by the cable */
void nic_fetched(struct fabric *f, struct frame *fr)
{
	struct tx *tx = tx_of(fr);
	struct port *itself = &tx->nic->port[1];

	port_enqueue(f, fr->to == itself ? itself : tx->port, fr);
}

static bool passes(struct fabric *f, struct frame *fr)
{
	return !fr->from || fr->from->ops->passes(f, fr);
}

/* A frame has left, or was dropped: its place in the transmit buffer is free for the next */
static void freed(struct fabric *f, struct frame *fr)
{
	struct tx *tx = tx_of(fr);

	fr->tx_buffer = NULL;
	tx->used_bytes -= fr->len;
	if (fr->from)
		fr->from->ops->gone(f, fr);
	nic_tx_kick(f, tx);
}

const struct tx_buffer_ops nic_tx_buffer_ops = {.passes = passes, .on_wire = nic_on_wire, .freed = freed};

/* A frame has crossed the scale-up domain: one at a time into each GPU */
static void scale_up_arrive(struct fabric *f, struct nic *n, struct frame *fr)
{
	ps_t ser = port_serialization(&n->port[1], fr->len);
	ps_t start = f->clock.now - ser;

	if (start < n->scale_rx_free)
		start = n->scale_rx_free;
	n->scale_rx_free = start + ser;
	event_add(f, n->scale_rx_free, EV_DELIVER, n->n.index, 2, 0, fr->id, fr, 0);
}

static void to_netdev(struct fabric *f, struct nic *n, struct frame *fr)
{
	if (n->netdev < 0) {
		port_drop(f, &n->port[0], fr, DROP_NO_QP);
		return;
	}
	frame_whole(f, fr);
	if (write(n->netdev, fr->data, fr->len) < 0)
		n->netdev_drops++;
	frame_release(f, fr);
}

/* Has a switch left only the beginning of a packet?  Its DSCP says so, and that it is not whole */
static bool was_trimmed(const struct nic *n, const struct frame *fr, struct roce_packet *pkt)
{
	uint32_t dscp = pkt->tos >> 2;

	return (dscp == n->p.trimmed_dscp || dscp == n->p.trimmed_last_hop_dscp) && roce_parse_trimmed(fr->data, fr->len, pkt) == ROCE_OK;
}

/* nic_receive() - A frame has come in from the cable or the scale-up domain */
void nic_receive(struct fabric *f, struct nic *n, struct frame *fr, bool scale_up)
{
	struct port *p = &n->port[scale_up];
	struct roce_packet pkt;

	switch (frame_parse(fr, &pkt)) {
	case ROCE_NOT_ROCE:
		to_netdev(f, n, fr);
		return;
	case ROCE_MALFORMED:
		if (was_trimmed(n, fr, &pkt))
			f->receivers->trimmed(f, n, &pkt, fr);
		else
			port_drop(f, p, fr, DROP_MALFORMED);
		return;
	case ROCE_BAD_ICRC:
		if (was_trimmed(n, fr, &pkt)) {
			f->receivers->trimmed(f, n, &pkt, fr);
			return;
		}
		n->icrc_errors++;
		port_drop(f, p, fr, DROP_ICRC);
		return;
	case ROCE_OK:
		break;
	}
	if (roce_is_offload(pkt.opcode)) {
		nic_count(&n->rx_rdma, p, fr);
		if (!f->receivers->offload(f, n, &pkt, fr))
			port_drop(f, p, fr, DROP_NO_QP);
		else if (!scale_up)
			nic_pressure(f, n);
		return;
	}
	if (roce_is_datagram(pkt.opcode))
		f->receivers->datagram(f, n, &pkt, fr, scale_up);
	else
		f->receivers->transport(f, n, &pkt, fr, scale_up);
}

/* nic_netdev_readable() - The host's kernel sends: into the NIC's queue, class 0 */
void nic_netdev_readable(struct fabric *f, struct nic *n)
{
	struct port *p = &n->port[0];

	if (clock_real_now(f) > f->clock.now)
		f->clock.now = clock_real_now(f);
	for (int i = 0; i < 64; i++) {
		if (p->queue[CLASS_DEFAULT].bytes >= NETDEV_QUEUE_BYTES) {
			n->netdev_paused = true;
			watch_set(f, n->netdev, WATCH_NETDEV, n, 0);
			return;
		}
		struct frame *fr = frame_new(f);
		ssize_t len = read(n->netdev, fr->data, f->frame_room - TRAILER_BYTES);
		if (len <= 0) {
			frame_release(f, fr);
			return;
		}
		fr->len = (uint32_t)len;
		fr->id = frame_number(&n->n);
		fr->class = CLASS_DEFAULT;
		port_enqueue(f, p, fr);
	}
}

/* The queue has shrunk: read on from the kernel */
static void netdev_resume(struct fabric *f, struct port *p)
{
	struct nic *n = (struct nic *)p->node;

	if (!n->netdev_paused || n->port[0].queue[CLASS_DEFAULT].bytes >= NETDEV_QUEUE_BYTES / 2)
		return;
	n->netdev_paused = false;
	watch_set(f, n->netdev, WATCH_NETDEV, n, EPOLLIN);
}

/* Its credits are free when PCIe has taken all that came */
static void from_cable(struct fabric *f, struct nic *n, struct port *p, struct frame *fr)
{
	unsigned class = fr->class;
	uint32_t blocks = p->credits ? credits_came(p, fr) : 0;

	nic_receive(f, n, fr, false);
	if (blocks)
		credits_free_at(f, p, class, blocks, n->pcie_rx_free);
}

static void receive(struct fabric *f, struct port *p, struct frame *fr)
{
	if (p->number == 2)
		scale_up_arrive(f, (struct nic *)p->node, fr);
	else
		from_cable(f, (struct nic *)p->node, p, fr);
}

/* What no source has built and what is for no queue pair, the host's kernel has sent */
static void leaving(struct fabric *f, struct port *p, struct frame *fr)
{
	(void)f;
	if (fr->tx_buffer || fr->to)
		nic_count(&((struct nic *)p->node)->tx_rdma, p, fr);
}

/* nic_count() - An RDMA packet has left or come in through the cable: mlx5's vport counters have data, acknowledgements
 * and congestion notifications alike, in both directions, and nothing of the scale-up domain
 */
void nic_count(struct vport *v, const struct port *p, const struct frame *fr)
{
	bool multicast = fr->data[0] & 1;

	if (p->number != 1)
		return;
	v->packets[multicast]++;
	v->bytes[multicast] += fr->len;
}

/* A frame is for the switch of the scale-up domain */
static void domain_receive(struct fabric *f, struct port *p, struct frame *fr)
{
	if (!f->receivers->domain(f, (struct scale_up *)p->node, fr))
		port_drop(f, p, fr, DROP_NO_QP);
}

/* nic_loop() - A NIC reaches itself from now on: within the scale-up domain, or once over its PCIe in each direction */
void nic_loop(struct nic *n)
{
	if (n->port[1].cable)
		return;
	n->loop = calloc(1, sizeof *n->loop);
	if (!n->loop)
		abort();
	*n->loop = (struct cable){.name = "loop", .p = {.rate_bps = n->p.pcie_bps, .delay = 2 * n->p.pcie_latency, .up = true}};
	n->port[1].cable = n->loop;
}

/* scale_ups_init() - Cables of scale-up domains, and their switches: nodes behind the last, without counts and settings */
void scale_ups_init(struct fabric *f)
{
	static const struct node_ops ops = {.receive = domain_receive};

	for (uint32_t k = 0; k < f->scale_up_count; k++) {
		struct scale_up *s = &f->scale_ups[k];
		s->cable = (struct cable){.name = "scale-up", .p = {.rate_bps = s->rate_bps, .delay = s->delay, .up = true}};
		s->n = (struct node){.kind = NODE_DOMAIN, .ops = &ops, .name = "scale-up", .port_count = 1, .ports = &s->port};
		s->n.index = f->node_count + k;
		port_init(&s->port, &s->n, 1);
		s->port.cable = &s->cable;
		f->nodes[s->n.index] = &s->n;
	}
}

const struct node_ops nic_ops = {.receive = receive, .leaving = leaving, .idle = netdev_resume};
