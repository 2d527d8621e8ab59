/* Hearing of every change of a switch's tables, whoever makes it
 *
 * Theory of Operation
 *
 * Each bridge has a socket for management (BRIDGE.mgmt) that speaks OpenFlow.  On
 * it a flow monitor is asked for (OpenFlow 1.5, 7.3.5.17), forwarded requests for
 * groups and meters (7.4.7), and news of ports (7.4.3); a barrier tells that all of
 * that is in force.  What is heard then means that the switch's flows may fare
 * otherwise from now on; which flows is not looked at.  The monitor also tells which
 * rules there are, and those count what goes by the fast path (rules.c).
 *
 * What the ports are is asked for, too (7.3.5.6): one that takes nothing in, or tells the
 * controller otherwise than others, fares otherwise although no rule looks at it.
 *
 * A switch whose changes would not be heard of has no cached flows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "fast_path/flow_cache.h"
#include "link/port.h"

#define OPENFLOW_1_5 6
#define HEADER_BYTES 8
#define MESSAGE_MAX 65536 /* its length has 16 bits */

enum message {
	HELLO = 0,
	ERROR = 1,
	ECHO_REQUEST = 2,
	ECHO_REPLY = 3,
	SET_CONFIG = 9,
	PORT_STATUS = 12,
	MULTIPART_REQUEST = 18,
	MULTIPART_REPLY = 19,
	BARRIER_REQUEST = 20,
	BARRIER_REPLY = 21,
	SET_ASYNC = 28,
	REQUESTFORWARD = 34,
};

#define PORT_DESC 13
#define FLOW_MONITOR 16
#define MONITOR_INITIAL_ADD_REMOVED_MODIFY 0x000f
#define ANY 0xffffffff
#define PORT_BYTES 40 /* of a port, until its features */
#define CONFIG_DOWN 1 /* the only one that is no matter of what comes in there */
#define STATE_BLOCKED 2 /* as a spanning tree has it */
#define ASYNC_PACKET_IN 1     /* of a controller that is nobody's slave, as all of these */
#define ASYNC_PORT_STATUS 3
#define ASYNC_FLOW_REMOVED 5
#define ASYNC_REQUESTFORWARD 11

struct tables_watch {
	struct reader reader; /* first */
	struct node *sw;
	int fd; /* -1: not connected */
	bool in_force;
	bool refused; /* what was asked for was refused: this switch reports to nobody */
	bool odd_port; /* there is, or was, one that is configured otherwise than others */
	int64_t again_ns; /* wall time before which it is not tried again */
	uint8_t *said; /* the beginning of a message; room for MESSAGE_MAX */
	uint32_t have;
};

static uint8_t *header(uint8_t *p, enum message type, uint16_t length)
{
	return put_be32(put_be16(put_u8(put_u8(p, OPENFLOW_1_5), type), length), type);
}

static uint8_t *async(uint8_t *p, uint16_t what, uint32_t mask)
{
	return put_be32(put_be16(put_be16(p, what), 8), mask);
}

static bool ask(int fd)
{
	uint8_t text[192], *p = header(text, HELLO, 8);

	/* without a length for packets that miss, a connection like this one is told nothing unasked */
	p = put_be16(put_be16(header(p, SET_CONFIG, 12), 0), 1);
	p = header(p, SET_ASYNC, 8 + 4 * 8);
	p = async(p, ASYNC_PACKET_IN, 0);
	p = async(p, ASYNC_PORT_STATUS, 7);
	p = async(p, ASYNC_FLOW_REMOVED, 0);
	p = async(p, ASYNC_REQUESTFORWARD, 3);
	p = header(p, MULTIPART_REQUEST, 16 + 24);
	p = put_be32(put_be16(put_be16(p, FLOW_MONITOR), 0), 0);
	p = put_be32(put_be32(put_be32(p, 1), ANY), ANY); /* the monitor's number, any port, any group */
	p = put_u8(put_u8(put_be16(p, MONITOR_INITIAL_ADD_REMOVED_MODIFY), 0xff), 0); /* all tables, a new monitor */
	p = put_be32(put_be16(put_be16(p, 1), 4), 0);			       /* all flows */
	p = header(p, MULTIPART_REQUEST, 16 + 8);
	p = put_be32(put_be32(put_be32(put_be16(put_be16(p, PORT_DESC), 0), 0), ANY), 0);
	p = header(p, BARRIER_REQUEST, 8);
	return write(fd, text, (size_t)(p - text)) == p - text;
}

/* Ports are told of: is one configured otherwise than others?  It counts until the watch begins anew */
static void ports_heard(struct fabric *f, struct tables_watch *w, struct view *v)
{
	while (v->left && !w->odd_port) {
		struct view port = *v;
		view_take(&port, 4);
		uint16_t length = get_be16(&port);
		view_take(&port, PORT_BYTES - 6 - 8);
		uint32_t config = get_be32(&port), state = get_be32(&port);
		w->odd_port = port.bad || length < PORT_BYTES || !view_take(v, length) || config & ~CONFIG_DOWN || state & STATE_BLOCKED;
		f->flow_cache->looked[w->sw->index].in_port += w->odd_port;
	}
}

static void lost(struct fabric *f, struct tables_watch *w)
{
	watch_remove(f, w->fd);
	close(w->fd);
	w->fd = -1;
	w->in_force = false;
	w->have = 0;
	f->flow_cache->looked[w->sw->index].in_port -= w->odd_port;
	w->odd_port = false;
	flow_cache_forget(f, w->sw);
	rules_lost(f->flow_cache, w->sw);
}

static bool echo(const struct tables_watch *w, const uint8_t *request)
{
	uint8_t reply[HEADER_BYTES];

	header(reply, ECHO_REPLY, HEADER_BYTES);
	memcpy(reply + 4, request + 4, 4);
	return write(w->fd, reply, sizeof reply) == sizeof reply;
}

/* A message is there
 * Return: false if it cannot be answered
 */
static bool heard(struct fabric *f, struct tables_watch *w, const uint8_t *message, uint32_t length)
{
	struct view v = view_of(message + HEADER_BYTES, length - HEADER_BYTES);
	uint8_t type = message[1];

	switch (type) {
	case HELLO:
	case ECHO_REPLY: return true;
	case ECHO_REQUEST: return echo(w, message);
	case ERROR: w->refused = true; return true;
	case BARRIER_REPLY:
		w->in_force = !w->refused;
		f->flow_cache->decided++;
		return true;
	}
	if (w->in_force)
		flow_cache_changed(f, w->sw);
	if (type == PORT_STATUS && view_take(&v, 8))
		ports_heard(f, w, &v);
	if (type != MULTIPART_REPLY)
		return true;
	uint16_t of = get_be16(&v);
	view_take(&v, 6);
	if (of == FLOW_MONITOR)
		rules_heard(f->flow_cache, w->sw, &v);
	else if (of == PORT_DESC)
		ports_heard(f, w, &v);
	return true;
}

/* Read what is there
 * Return: whether there may be more
 */
static bool more(struct fabric *f, struct tables_watch *w)
{
	ssize_t n = read(w->fd, w->said + w->have, MESSAGE_MAX - w->have);
	uint32_t at = 0, length;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return errno == EINTR;
	if (n <= 0) {
		lost(f, w);
		return false;
	}
	for (w->have += (uint32_t)n; w->have - at >= HEADER_BYTES; at += length) {
		const uint8_t *message = w->said + at;
		length = (uint32_t)message[2] << 8 | message[3];
		bool right = length >= HEADER_BYTES && message[0] == OPENFLOW_1_5;
		if (right && w->have - at < length)
			break;
		if (!right || !heard(f, w, message, length)) {
			lost(f, w);
			return false;
		}
	}
	w->have -= at;
	memmove(w->said, w->said + at, w->have);
	return true;
}

static void readable(struct fabric *f, struct reader *r)
{
	more(f, (struct tables_watch *)r);
}

/* tables_read() - What is told of a switch by now is heard now */
void tables_read(struct fabric *f, const struct node *sw)
{
	struct flow_cache *c = f->flow_cache;

	while (c->watches && c->watches[sw->index].fd >= 0 && more(f, &c->watches[sw->index]))
		;
}

/* tables_settled() - The controller's changes are in force: what is heard of them is heard now */
void tables_settled(struct fabric *f)
{
	for (uint32_t i = 0; i < f->switch_count; i++)
		tables_read(f, f->nodes[i]);
}

/* tables_watched() - Will every change of a switch's tables be heard of? */
bool tables_watched(struct fabric *f, struct node *sw)
{
	struct flow_cache *c = f->flow_cache;

	if (!c->watches) {
		c->watches = calloc(f->switch_count, sizeof *c->watches);
		if (!c->watches)
			abort();
		for (uint32_t i = 0; i < f->switch_count; i++)
			c->watches[i] = (struct tables_watch){.reader = {readable}, .sw = f->nodes[i], .fd = -1};
	}
	struct tables_watch *w = &c->watches[sw->index];
	if (w->fd >= 0 || w->refused || wall_ns() < w->again_ns)
		return w->in_force;
	w->again_ns = wall_ns() + RETRY_NS;
	if (!w->said && !(w->said = malloc(MESSAGE_MAX)))
		abort();
	w->fd = local_connect(c->folder, c->bridge[sw->index], ".mgmt");
	if (w->fd >= 0 && (!watch_add(f, w->fd, WATCH_READER, w) || !ask(w->fd)))
		lost(f, w);
	return false;
}

/* tables_watch_begins() - Has a switch been asked to tell of changes, and not answered yet? */
bool tables_watch_begins(const struct flow_cache *c, const struct node *sw)
{
	const struct tables_watch *w = &c->watches[sw->index];

	return w->fd >= 0 && !w->in_force && !w->refused;
}

void tables_unwatch(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;

	for (uint32_t i = 0; c->watches && i < f->switch_count; i++) {
		if (c->watches[i].fd >= 0)
			close(c->watches[i].fd);
		free(c->watches[i].said);
	}
	free(c->watches);
}
