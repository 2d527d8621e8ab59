/* What decides about a flow? Open vSwitch is asked
 *
 * Theory of Operation
 *
 * `ofproto/trace` of ovs-vswitchd (ovs-vswitchd(8)) tells what a packet with given
 * headers would meet, table by table, and what the datapath is told to do.  Only
 * if that is to output it, with headers changed or not, and no action on the way
 * looks at anything but headers, will the next packet of the flow fare alike.
 *
 * Open vSwitch answers ten questions of each connection at each turn of its main loop,
 * and a turn takes 12 ms with 2,000 ports.  Thousands of flows may begin at once, and
 * frames wait for the answers (switch/ovs.c).  So there are many connections, and
 * questions beyond what they hold stand in a queue.
 *
 * The control socket speaks JSON-RPC 1.0: {"id", "method", "params"} one way,
 * {"id", "result", "error"} the other, one after another.  Questions are sent
 * without waiting.  There are thousands where packets take many paths, so that both are
 * written and read as they stand (reply.c), and no JSON is built of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "link/port.h"
#include "fast_path/flow_cache.h"
#include "fast_path/reply.h"
#include "fast_path/trace_text.h"

#define SOCKET "ovs-vswitchd.ctl"
#define LINES 64
#define ASKED_MAX (LINES * 16)
#define REQUEST_MAX 512
#define PURGE 0 /* the id of that request; those of questions are larger */
#define PURGE_ID "0"

struct question {
	uint32_t number; /* of the flow; 0: none */
	struct flow_key key;
};

/* A connection */
struct line {
	struct reader reader; /* first */
	int fd;
	struct replies replies;
};

struct trace {
	struct line line[LINES];
	bool connected; /* all of them */
	uint32_t hang_ups;
	uint32_t turn;	/* which of them asks next */
	int64_t again_ns; /* wall time before which it is not tried again */
	struct question asked[ASKED_MAX];
	uint32_t open; /* of these */
	struct question *queue; /* not asked yet */
	size_t first, next, queue_room;
};

/* Do the datapath's actions only output, with headers changed or not?
 * Return: how many copies, or -1
 */
static int copies_of(const char *actions)
{
	static const char *const harmless[] = {"set(eth(", "set(ipv4(", "set(udp(", "push_vlan(", "pop_vlan"};
	int copies = 0, depth = 0;

	if (!strncmp(actions, "drop", 4))
		return 0;
	for (const char *p = actions; *p && *p != '\n';) {
		bool known = *p >= '0' && *p <= '9';
		copies += known;
		for (size_t i = 0; !known && i < sizeof harmless / sizeof *harmless; i++)
			known = !strncmp(p, harmless[i], strlen(harmless[i]));
		if (!known)
			return -1;
		for (; *p && *p != '\n' && (*p != ',' || depth); p++)
			depth += (*p == '(') - (*p == ')');
		p += *p == ',';
	}
	return copies;
}

/* Does an action stand in what was met that looks at more than headers, or changes tables? */
static bool looks_at_more(const char *text)
{
	static const char *const actions[] = {"learn(", "NORMAL", "CONTROLLER", "meter:", "sample(", "ct(", "Resum", "slow path"};

	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (strstr(text, actions[i]))
			return true;
	return false;
}

static void heard(struct fabric *f, struct trace *t, const struct reply *reply)
{
	static const char line[] = "Datapath actions: ";
	uint64_t id = reply->id;
	const char *text = reply->result;
	struct question *q = &t->asked[id % ASKED_MAX];

	if (id == PURGE) {
		f->flow_cache->purges--;
		f->flow_cache->decided++;
		return;
	}
	const char *actions = text ? strstr(text, line) : NULL;

	if (!q->number || q->number != id / ASKED_MAX)
		return;
	uint32_t number = q->number;
	q->number = 0;
	t->open--;
	if (!text)
		text = "";
	struct answer *answer = calloc(1, sizeof *answer + strlen(text) + 1);
	if (!answer)
		abort();
	strcpy(answer->text, text);
	answer->copies = !actions || looks_at_more(text) ? -1 : copies_of(actions + sizeof line - 1);
	megaflow_mask(&answer->told.bits, text);
	if (answer->copies >= 0) {
		ecmp_told(&answer->told.ecmp, &answer->link, text);
		answer->told.bits.port = trace_tells_ports_apart(text) ? UINT16_MAX : 0;
	}
	flow_cache_explained(f, &q->key, number, answer);
}

static void hang_up(struct fabric *f, struct trace *t)
{
	t->hang_ups++;
	for (int i = 0; i < LINES; i++) {
		struct line *line = &t->line[i];
		if (line->fd < 0)
			continue;
		watch_remove(f, line->fd);
		close(line->fd);
		line->fd = -1;
		replies_forget(&line->replies);
	}
	t->connected = false;
	memset(t->asked, 0, sizeof t->asked);
	t->open = 0;
	t->first = t->next = 0;
	f->flow_cache->purges = 0;
	flow_cache_forget(f, NULL);
}

static bool ask_next(struct fabric *f, struct trace *t);

static void readable(struct fabric *f, struct reader *r)
{
	struct line *t = (struct line *)r;
	struct trace *trace = f->flow_cache->trace;
	struct reply reply;
	size_t room;
	char *to = replies_room(&t->replies, &room);

	if (!to) {
		hang_up(f, trace);
		return;
	}
	ssize_t n = read(t->fd, to, room);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(f, trace);
		return;
	}
	replies_came(&t->replies, (size_t)n);
	while (replies_next(&t->replies, &reply)) {
		uint32_t hang_ups = trace->hang_ups;
		heard(f, trace, &reply);
		if (trace->hang_ups != hang_ups)
			return; /* it had something to ask, and could not; the line may be a new one */
	}
	ask_next(f, trace);
}

/* local_connect() - A stream to a socket in Open vSwitch's folder, or -1 */
int local_connect(int folder, const char *name, const char *suffix)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int n = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s%s", folder, name, suffix);

	if (fd >= 0 && n > 0 && (size_t)n < sizeof address.sun_path &&
	    !connect(fd, (const struct sockaddr *)&address, sizeof address))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static struct trace *trace_open(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;
	struct trace *t = c->trace;

	if (!t) {
		t = c->trace = calloc(1, sizeof *t);
		if (!t)
			abort();
		for (int i = 0; i < LINES; i++)
			t->line[i] = (struct line){.reader.readable = readable, .fd = -1};
	}
	if (!t->connected && wall_ns() >= t->again_ns) {
		t->again_ns = wall_ns() + RETRY_NS;
		t->connected = true;
		for (int i = 0; i < LINES && t->connected; i++) {
			struct line *line = &t->line[i];
			line->fd = local_connect(c->folder, SOCKET, "");
			t->connected = line->fd >= 0 && watch_add(f, line->fd, WATCH_READER, line);
		}
		if (!t->connected)
			hang_up(f, t);
	}
	return t->connected ? t : NULL;
}

/* Send a request that is written but for its end */
static bool request(struct fabric *f, struct trace *t, const char *text, struct text *o)
{
	struct line *line = &t->line[t->turn++ % LINES];

	TEXT_ADD(o, "]}");
	size_t bytes = (size_t)(o->at - text);
	bool sent = !o->full && write(line->fd, text, bytes) == (ssize_t)bytes;
	if (!sent)
		hang_up(f, t);
	return sent;
}

static bool request_trace(struct fabric *f, struct trace *t, uint64_t id, const struct flow *flow, const struct flow_key *key)
{
	char text[REQUEST_MAX];
	struct text o = {.at = text, .left = sizeof text};

	TEXT_ADD(&o, "{\"id\":");
	text_number(&o, id);
	TEXT_ADD(&o, ",\"method\":\"ofproto/trace\",\"params\":[\"");
	text_escaped(&o, f->flow_cache->bridge[flow->sw->index]);
	TEXT_ADD(&o, "\",\"");
	flow_key_print(key, &o);
	TEXT_ADD(&o, "\"");
	return request(f, t, text, &o);
}

/* Ask what stands in the queue, as far as there is room
 * Return: false if Open vSwitch cannot be asked, and all is forgotten
 */
static bool ask_next(struct fabric *f, struct trace *t)
{
	while (t->first != t->next && t->open < ASKED_MAX) {
		struct question q = t->queue[t->first++ % t->queue_room];
		const struct flow *flow = flow_cache_asked(f, &q.key, q.number);
		uint32_t i = 0;
		if (!flow)
			continue; /* forgotten meanwhile, or part of another */
		while (t->asked[i].number)
			i++;
		t->open++;
		t->asked[i] = q;
		if (!request_trace(f, t, (uint64_t)q.number * ASKED_MAX + i, flow, &q.key))
			return false;
	}
	return true;
}

/* trace_ready() - Can Open vSwitch be asked? */
bool trace_ready(struct fabric *f)
{
	return trace_open(f);
}

static void queue_grow(struct trace *t)
{
	size_t room = t->queue_room ? 2 * t->queue_room : 1024;
	struct question *queue = calloc(room, sizeof *queue);

	if (!queue)
		abort();
	for (size_t i = t->first; i != t->next; i++)
		queue[i - t->first] = t->queue[i % t->queue_room];
	free(t->queue);
	t->queue = queue;
	t->next -= t->first;
	t->first = 0;
	t->queue_room = room;
}

/* trace_ask() - Ask what decides about a flow; flow_cache_explained() has the answer
 * @key:	Of the frame of it that has been shown
 *
 * Return: false if it cannot be asked; the flow may be forgotten then
 */
bool trace_ask(struct fabric *f, const struct flow *flow, const struct flow_key *key)
{
	struct trace *t = trace_open(f);

	if (!t)
		return false;
	if (t->next - t->first == t->queue_room)
		queue_grow(t);
	t->queue[t->next++ % t->queue_room] = (struct question){.number = flow->number, .key = *key};
	return ask_next(f, t);
}

/* trace_purge() - Have Open vSwitch forget what it has cached
 * Return: false if it cannot be asked
 */
bool trace_purge(struct fabric *f)
{
	struct trace *t = trace_open(f);
	char text[REQUEST_MAX];
	struct text o = {.at = text, .left = sizeof text};

	TEXT_ADD(&o, "{\"id\":" PURGE_ID ",\"method\":\"revalidator/purge\",\"params\":[");
	return t && request(f, t, text, &o);
}

void trace_free(struct fabric *f)
{
	struct trace *t = f->flow_cache->trace;

	if (!t)
		return;
	for (int i = 0; i < LINES; i++) {
		if (t->line[i].fd >= 0)
			close(t->line[i].fd);
		replies_free(&t->line[i].replies);
	}
	free(t->queue);
	free(t);
}
