/* Frames through Open vSwitch
 *
 * Theory of Operation
 *
 * Every switch port is a TAP device that is a port of the switch's bridge.  A
 * frame is written into its ingress port's TAP with a trailer behind the
 * packet (Ethernet padding, as far as Open vSwitch is concerned) and is
 * `pending` until it is settled:
 *
 *  - it comes out of another TAP: the trailer names the pending slot.  At its
 *    deadline (a switch latency after t_in, or after its header) it is offered to that port's queue.  With
 *    a unicast destination the first copy settles it.
 *    An adaptive switch takes one of several copies, and so waits until all are there;
 *  - two fences, one after the other, have gone through Open vSwitch after it (fence.c):
 *    no copy at all is a forwarding drop.
 *
 * Now and then a twin of a frame that goes by the fast path is handed over: a check.
 * Nobody waits for it, and what comes out is only compared.
 *
 * A copy of a frame that is settled already, or a frame without our trailer
 * (a controller's packet-out), is taken at the current time and flagged.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/patience.h"
#include "base/tap.h"
#include "base/units.h"
#include "base/wall.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "fast_path/flow_cache.h"
#include "link/frame.h"
#include "link/port.h"
#include "switch/adaptive.h"
#include "switch/ovs.h"
#include "switch/switch.h"
#include "wire/ethernet.h"

#define PORT_PENDING_MAX 32

/* What the kernel charges OVS's socket for one frame: whole pages and overhead */
static uint32_t truesize(uint32_t len)
{
	return (len + TRAILER_BYTES + 512 + 4095) / 4096 * 4096;
}

/* What a new socket has: net.core.rmem_default, which not every network namespace shows in /proc */
static bool receive_buffer(int *bytes)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool known = !getsockopt(fd, SOL_SOCKET, SO_RCVBUF, bytes, &(socklen_t){sizeof *bytes});

	close(fd);
	return known;
}

/* ovs_new() - Before anything is opened */
struct ovs *ovs_new(void)
{
	struct ovs *o = calloc(1, sizeof *o);

	if (!o)
		abort();
	o->fence_tap = -1;
	return o;
}

bool ovs_open(struct fabric *f, const char *fence_tap)
{
	struct ovs *o = f->ovs;
	char error[256];
	int room;

	if (!receive_buffer(&room))
		return config_fail(f, "no socket: %s", strerror(errno));
	o->room_bytes = (uint32_t)(room > 65536 ? room - 16384 : room / 2);
	if (getrandom(&o->nonce, sizeof o->nonce, 0) != sizeof o->nonce)
		return config_fail(f, "no random numbers: %s", strerror(errno));
	for (uint16_t i = 0; i < SLOTS; i++)
		o->free_slot[o->free_count++] = i;
	o->flagged_examples = json_array();
	if (!fence_tap)
		return config_fail(f, "fence_tap: a name");
	o->fence_tap = tap_open(fence_tap, error, sizeof error);
	if (o->fence_tap < 0 || !tap_up(fence_tap, 0, error, sizeof error))
		return config_fail(f, "%s", error);
	return watch_add(f, o->fence_tap, WATCH_FENCE, o);
}

void ovs_close(struct fabric *f)
{
	if (!f->ovs)
		return;
	if (f->ovs->fence_tap >= 0)
		close(f->ovs->fence_tap);
	for (uint32_t i = 0; i < SLOTS; i++)
		free(f->ovs->slot[i].decision);
	json_decref(f->ovs->flagged_examples);
	free(f->ovs);
	f->ovs = NULL;
}

/* ovs_room() - May a frame be handed over at @in now? */
bool ovs_room(const struct fabric *f, const struct port *in)
{
	return f->ovs->inside < PENDING_MAX && in->tap_pending < PORT_PENDING_MAX &&
	       in->tap_pending_bytes + truesize(f->frame_room - TRAILER_BYTES) <= f->ovs->room_bytes;
}

static void flag(struct fabric *f, const struct port *p, const char *what, const uint8_t *data, size_t len)
{
	char text[256];

	f->ovs->flagged++;
	if (json_array_size(f->ovs->flagged_examples) >= 16)
		return;
	frame_describe(data, len, len, text, sizeof text);
	json_array_append_new(f->ovs->flagged_examples,
			      json_pack("{s:s, s:s, s:i, s:o, s:s}", "what", what, "switch", p->node->name, "port",
					p->number, "time_ns", ns_json(f->clock.now), "headers", text));
}

static bool is_check(const struct pending *p)
{
	return p->deadline == PS_NEVER;
}

/* The fast path learns what has become of a frame, or finds out that it knew otherwise */
static void learn(struct fabric *f, struct pending *p)
{
	if (p->flow && p->epoch == f->flow_cache->epoch)
		flow_cache_decided(f, p->flow, p->decision);
}

static void hand_over(struct fabric *f, struct port *in, struct frame *fr, ps_t deadline, struct flow *flow);

/* Twins go as soon as there is room for them */
static void checks_go(struct fabric *f)
{
	struct ovs *o = f->ovs;

	while (o->first_check != o->next_check) {
		struct check *c = &o->check[o->first_check % CHECKS_MAX];
		bool over = c->epoch != f->flow_cache->epoch;
		if (!over && !ovs_room(f, c->in))
			return;
		o->first_check++;
		if (over) {
			frame_release(f, c->twin);
			continue;
		}
		flow_cache_twin_goes(c->flow, c->twin);
		hand_over(f, c->in, c->twin, PS_NEVER, c->flow);
	}
}

static uint16_t slot_number(const struct ovs *o, const struct pending *p)
{
	return (uint16_t)(p - o->slot);
}

/* ovs_take_out() - It pends no longer */
void ovs_take_out(struct ovs *o, struct pending *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		o->head = p->next;
	if (p->next)
		p->next->prev = p->prev;
	else
		o->tail = p->prev;
	p->in_use = false;
	free(p->decision);
	p->decision = NULL;
	o->free_slot[o->free_count++] = slot_number(o, p);
}

/* ovs_settle() - It is known what has become of a frame */
void ovs_settle(struct fabric *f, struct pending *p)
{
	struct ovs *o = f->ovs;

	learn(f, p);
	ovs_take_out(o, p);
	o->inside--;
	o->settled_ns = o->last_ns;
	p->in->tap_pending--;
	p->in->tap_pending_bytes -= truesize(p->frame->len);
	if (p->came)
		adaptive_came(f, p);
	if (p->copies || is_check(p))
		frame_release(f, p->frame);
	else
		event_add(f, p->deadline > f->clock.now ? p->deadline : f->clock.now, EV_FORWARDING_DROP, p->in->node->index,
			  p->in->number, 0, p->frame->id, p->frame, 0);
	checks_go(f);
}

static void insert_by_deadline(struct ovs *o, struct pending *p)
{
	struct pending *after = o->tail;

	while (after && after->deadline > p->deadline)
		after = after->prev;
	p->prev = after;
	p->next = after ? after->next : o->head;
	if (p->next)
		p->next->prev = p;
	else
		o->tail = p;
	if (after)
		after->next = p;
	else
		o->head = p;
}

/* ovs_pend() - A frame takes a slot; there is a free one
 * @deadline:	The clock waits for it then
 * @flow:	That is being decided about, or NULL
 */
struct pending *ovs_pend(struct fabric *f, struct port *in, struct frame *fr, ps_t deadline, struct flow *flow)
{
	struct ovs *o = f->ovs;
	struct pending *p = &o->slot[o->free_slot[--o->free_count]];

	p->frame = fr;
	p->in = in;
	p->deadline = deadline;
	p->number = HELD;
	p->generation++;
	p->in_use = true;
	p->multicast = fr->data[0] & 1 || in->node->adaptive;
	p->came = NULL;
	p->copies = 0;
	p->flow = flow;
	if (flow)
		p->epoch = f->flow_cache->epoch;
	if (!o->head)
		o->settled_ns = wall_ns();
	insert_by_deadline(o, p);
	return p;
}

/* @flow:	What becomes of the frame is noted for it, or NULL */
static void hand_over(struct fabric *f, struct port *in, struct frame *fr, ps_t deadline, struct flow *flow)
{
	struct ovs *o = f->ovs;
	struct pending *p = ovs_pend(f, in, fr, deadline, flow);

	frame_whole(f, fr);
	p->number = ++o->last_number;
	if (flow) {
		p->decision = malloc(sizeof *p->decision);
		if (!p->decision)
			abort();
		decision_begin(p->decision, in, fr);
	}
	o->inside++;
	in->tap_pending++;
	in->tap_pending_bytes += truesize(fr->len);

	uint8_t *t = put_le32(fr->data + fr->len, o->nonce);
	t = put_le32(t, p->generation);
	t = put_le16(t, slot_number(o, p));
	t = put_le16(t, in->number);
	put_le32(t, ~(o->nonce ^ p->generation));
	if (write(in->tap, fr->data, fr->len + TRAILER_BYTES) < 0) {
		o->write_errors++;
		flag(f, in, strerror(errno), fr->data, fr->len);
	}
}

static void count_hop(struct ovs *o)
{
	if (!o->hops++)
		o->first_ns = wall_ns();
}

/* ovs_hand_over() - Give a frame to Open vSwitch at the port that it is on its way to
 *
 * The caller has asked ovs_room() first.
 */
void ovs_hand_over(struct fabric *f, struct frame *fr)
{
	struct port *in = fr->passage->in;

	count_hop(f->ovs);
	hand_over(f, in, fr, fr->passage->through,
		  f->flow_cache ? flow_cache_learns(f, in, fr) : NULL);
}

/* ovs_spared() - A frame goes through a switch by the fast path */
void ovs_spared(struct fabric *f, struct port *in, struct frame *fr, struct flow *flow)
{
	struct ovs *o = f->ovs;

	count_hop(o);
	if (flow->left || f->flow_cache->purges || o->next_check - o->first_check == CHECKS_MAX) {
		flow_cache_carried(f->flow_cache, flow, fr);
		return;
	}
	flow_cache_checks(f->flow_cache, flow, fr);
	o->check[o->next_check++ % CHECKS_MAX] =
		(struct check){.twin = frame_twin(f, fr), .in = in, .flow = flow, .epoch = f->flow_cache->epoch};
	checks_go(f);
}

static struct pending *trailer_pending(struct ovs *o, const uint8_t *data, size_t len, bool *ours)
{
	struct view v = view_of(data + len - TRAILER_BYTES, TRAILER_BYTES);
	uint32_t nonce = get_le32(&v), generation = get_le32(&v);
	uint16_t slot = get_le16(&v);

	get_le16(&v);
	*ours = nonce == o->nonce && get_le32(&v) == ~(nonce ^ generation) && slot < SLOTS;
	if (!*ours || !o->slot[slot].in_use || o->slot[slot].generation != generation)
		return NULL;
	return &o->slot[slot];
}

static void came_out(struct fabric *f, struct port *out, struct frame *fr, size_t n)
{
	bool ours = false;
	struct pending *p = n > TRAILER_BYTES ? trailer_pending(f->ovs, fr->data, n, &ours) : NULL;
	ps_t t = f->clock.now;

	fr->len = (uint32_t)(ours ? n - TRAILER_BYTES : n);
	if (p) {
		p->copies++;
		if (p->flow)
			decision_add(f, p->decision, p->frame, out->number, fr);
		if (is_check(p)) {
			frame_release(f, fr);
			if (!p->multicast)
				ovs_settle(f, p);
			return;
		}
		fr->id = p->frame->id;
		fr->passage = passage_join(p->frame->passage);
		if (out->node->adaptive && !(fr->data[0] & 1)) {
			fr->to = out;
			fr->next = p->came;
			p->came = fr;
			return;
		}
		if (p->deadline > t)
			t = p->deadline;
		event_add(f, t, EV_FORWARD, out->node->index, p->in->number, out->number, fr->id, fr, 0);
		if (!p->multicast)
			ovs_settle(f, p);
		return;
	}
	flag(f, out, ours ? "late copy" : "foreign frame", fr->data, fr->len);
	fr->id = frame_number(out->node);
	event_add(f, t, EV_FORWARD, out->node->index, 0, out->number, fr->id, fr, 0);
}

/* ovs_readable() - Take in all that Open vSwitch has put out at a port */
void ovs_readable(struct fabric *f, struct port *out)
{
	f->ovs->last_ns = wall_ns();
	for (;;) {
		struct frame *fr = frame_new(f);
		ssize_t n = read(out->tap, fr->data, f->frame_room);
		if (n <= 0) {
			frame_release(f, fr);
			return;
		}
		came_out(f, out, fr, (size_t)n);
	}
}

/* ovs_stepped() - A burst of events is over: frames may have gone by the fast path */
void ovs_stepped(struct fabric *f)
{
	struct ovs *o = f->ovs;

	if (f->flow_cache && o->timed != f->flow_cache->hits) {
		o->timed = f->flow_cache->hits;
		o->last_ns = wall_ns();
	}
}
