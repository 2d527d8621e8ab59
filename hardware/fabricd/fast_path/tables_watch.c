/* Hearing of every change of a switch's tables, whoever makes it
 *
 * Theory of Operation
 *
 * Each bridge has a socket for management (BRIDGE.mgmt) that speaks OpenFlow.  On
 * it a flow monitor is asked for (OpenFlow 1.5, 7.3.5.17), forwarded requests for
 * groups and meters (7.4.7), and news of ports (7.4.3); a barrier tells that all of
 * that is in force.  What is heard then means that the switch's flows may fare
 * otherwise from now on; what exactly has changed is not looked at.
 *
 * A switch whose changes would not be heard of has no cached flows.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "fast_path/flow_cache.h"
#include "link/port.h"

#define OPENFLOW_1_5 6
#define HEADER_BYTES 8

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

#define FLOW_MONITOR 16
#define MONITOR_ADD_REMOVED_MODIFY 0x000e
#define ANY 0xffffffff
#define ASYNC_PACKET_IN 1     /* of a controller that is nobody's slave, as all of these */
#define ASYNC_PORT_STATUS 3
#define ASYNC_FLOW_REMOVED 5
#define ASYNC_REQUESTFORWARD 11

struct tables_watch {
	struct reader reader; /* first */
	struct node *sw;
	int fd; /* -1: not connected */
	bool in_force;
	bool refused; /* what was asked for: this switch tells nobody */
	int64_t again_ns; /* wall time before which it is not tried again */
	uint8_t head[HEADER_BYTES];
	uint32_t have, skip; /* of the header; bytes of the message behind it */
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
	uint8_t text[160], *p = header(text, HELLO, 8);

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
	p = put_u8(put_u8(put_be16(p, MONITOR_ADD_REMOVED_MODIFY), 0xff), 0); /* all tables, a new monitor */
	p = put_be32(put_be16(put_be16(p, 1), 4), 0);			       /* all flows */
	p = header(p, BARRIER_REQUEST, 8);
	return write(fd, text, (size_t)(p - text)) == p - text;
}

static void lost(struct fabric *f, struct tables_watch *w)
{
	watch_remove(f, w->fd);
	close(w->fd);
	w->fd = -1;
	w->in_force = false;
	w->have = w->skip = 0;
	flow_cache_forget(f, w->sw);
}

static void heard(struct fabric *f, struct tables_watch *w, uint8_t type)
{
	switch (type) {
	case HELLO:
	case ECHO_REPLY: break;
	case ERROR: w->refused = true; break;
	case BARRIER_REPLY: w->in_force = !w->refused; break;
	default:
		if (w->in_force)
			flow_cache_changed(f, w->sw);
	}
}

/* Read what is there
 * Return: whether there may be more
 */
static bool more(struct fabric *f, struct tables_watch *w)
{
	uint8_t data[4096];
	ssize_t n = read(w->fd, data, sizeof data);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return errno == EINTR;
	if (n <= 0) {
		lost(f, w);
		return false;
	}
	for (ssize_t i = 0; i < n;) {
		if (w->skip) {
			uint32_t step = w->skip < (size_t)(n - i) ? w->skip : (uint32_t)(n - i);
			w->skip -= step;
			i += step;
			continue;
		}
		w->head[w->have++] = data[i++];
		if (w->have < HEADER_BYTES)
			continue;
		uint32_t length = (uint32_t)w->head[2] << 8 | w->head[3];
		w->have = 0;
		if (length < HEADER_BYTES || w->head[0] != OPENFLOW_1_5) {
			lost(f, w);
			return false;
		}
		w->skip = length - HEADER_BYTES;
		if (w->head[1] == ECHO_REQUEST) {
			uint8_t reply[HEADER_BYTES];
			header(reply, ECHO_REPLY, HEADER_BYTES);
			memcpy(reply + 4, w->head + 4, 4);
			if (write(w->fd, reply, sizeof reply) != sizeof reply) {
				lost(f, w);
				return false;
			}
			continue;
		}
		heard(f, w, w->head[1]);
	}
	return true;
}

static void readable(struct fabric *f, struct reader *r)
{
	more(f, (struct tables_watch *)r);
}

/* tables_settled() - The controller's changes are in force: what is heard of them is heard now */
void tables_settled(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;

	for (uint32_t i = 0; c->watches && i < f->switch_count; i++)
		while (c->watches[i].fd >= 0 && more(f, &c->watches[i]))
			;
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
	w->fd = local_connect(c->folder, c->bridge[sw->index], ".mgmt");
	if (w->fd >= 0 && (!watch_add(f, w->fd, WATCH_READER, w) || !ask(w->fd)))
		lost(f, w);
	return false;
}

void tables_unwatch(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;

	for (uint32_t i = 0; c->watches && i < f->switch_count; i++)
		if (c->watches[i].fd >= 0)
			close(c->watches[i].fd);
	free(c->watches);
}
