/* What decides about a flow? Open vSwitch is asked
 *
 * Theory of Operation
 *
 * `ofproto/trace` of ovs-vswitchd (ovs-vswitchd(8)) tells what a packet with given
 * headers would meet, table by table, and what the datapath is told to do.  Only
 * if that is to output it, with headers changed or not, and no action on the way
 * looks at anything but headers, will the next packet of the flow fare alike.
 *
 * Open vSwitch answers some questions at each turn of its main loop, and its turns
 * get longer with each port.  Where thousands of flows begin at once, most of their
 * frames would be through before the answers are there.  So when many questions are
 * open, the virtual clock stands still until all are answered (trace_holds()).  That
 * costs no figure, as it makes no difference which way frames go; and should answers
 * not come, the clock goes on after HOLD_NS of wall time.
 *
 * The control socket speaks JSON-RPC 1.0: {"id", "method", "params"} one way,
 * {"id", "result", "error"} the other, one after another.  Questions are sent
 * without waiting; frames take the slow path until the answer is there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/wall.h"
#include "engine/fabric.h"
#include "engine/watch.h"
#include "link/port.h"
#include "fast_path/flow_cache.h"

#define SOCKET "ovs-vswitchd.ctl"
#define ASKED_MAX 64
#define ANSWER_MAX (1u << 20)
#define MANY (ASKED_MAX / 2)
#define HOLD_NS 1000000000LL
#define PURGE 0 /* the id of that request; those of questions are larger */

struct question {
	uint32_t number; /* of the flow; 0: none */
	struct flow_key key;
};

struct trace {
	struct reader reader; /* first */
	int fd; /* -1: not connected */
	int64_t again_ns; /* wall time before which it is not tried again */
	struct question asked[ASKED_MAX];
	uint32_t open; /* questions */
	int64_t holds_until_ns; /* of wall time */
	char *answer;
	size_t have, room;
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

static void heard(struct fabric *f, struct trace *t, const json_t *answer)
{
	static const char line[] = "Datapath actions: ";
	uint64_t id = (uint64_t)json_integer_value(json_object_get(answer, "id"));
	const char *text = json_string_value(json_object_get(answer, "result"));
	struct question *q = &t->asked[id % ASKED_MAX];

	if (id == PURGE) {
		f->flow_cache->purges--;
		return;
	}
	const char *actions = text ? strstr(text, line) : NULL;

	if (!q->number || q->number != id / ASKED_MAX)
		return;
	uint32_t number = q->number;
	q->number = 0;
	t->open--;
	f->flow_cache->holds &= t->open > 0;
	int copies = !actions || looks_at_more(text) ? -1 : copies_of(actions + sizeof line - 1);
	struct flow *flow = flow_cache_explained(f, &q->key, number, copies);
	if (flow)
		rules_met(f->flow_cache, flow, text);
}

static void hang_up(struct fabric *f, struct trace *t)
{
	watch_remove(f, t->fd);
	close(t->fd);
	t->fd = -1;
	t->have = 0;
	memset(t->asked, 0, sizeof t->asked);
	t->open = 0;
	f->flow_cache->holds = false;
	f->flow_cache->purges = 0;
	flow_cache_forget(f, NULL);
}

static void readable(struct fabric *f, struct reader *r)
{
	struct trace *t = (struct trace *)r;
	json_error_t error;
	json_t *answer;

	if (t->room - t->have < 4096) {
		size_t room = t->room ? 2 * t->room : 1 << 16;
		char *grown = room > ANSWER_MAX ? NULL : realloc(t->answer, room);
		if (!grown) {
			hang_up(f, t);
			return;
		}
		t->answer = grown;
		t->room = room;
	}
	ssize_t n = read(t->fd, t->answer + t->have, t->room - t->have);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(f, t);
		return;
	}
	t->have += (size_t)n;
	while (t->have && (answer = json_loadb(t->answer, t->have, JSON_DISABLE_EOF_CHECK, &error))) {
		heard(f, t, answer);
		json_decref(answer);
		if (t->fd < 0)
			return; /* hung up: it had something to ask, and could not */
		t->have -= (size_t)error.position;
		memmove(t->answer, t->answer + error.position, t->have);
	}
}

/* local_connect() - A stream to a socket in Open vSwitch's folder, or -1 */
int local_connect(const char *folder, const char *name, const char *suffix)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s%s", folder, name, suffix);

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
		t->reader.readable = readable;
		t->fd = -1;
	}
	if (t->fd < 0 && wall_ns() >= t->again_ns) {
		t->again_ns = wall_ns() + RETRY_NS;
		t->fd = local_connect(c->folder, SOCKET, "");
		if (t->fd >= 0 && !watch_add(f, t->fd, WATCH_READER, t))
			hang_up(f, t);
	}
	return t->fd < 0 ? NULL : t;
}

static bool request(struct fabric *f, struct trace *t, uint64_t id, const char *method, json_t *params)
{
	json_t *o = json_pack("{s:I, s:s, s:o}", "id", (json_int_t)id, "method", method, "params", params);
	char *text = json_dumps(o, JSON_COMPACT);
	bool sent = text && write(t->fd, text, strlen(text)) == (ssize_t)strlen(text);

	json_decref(o);
	free(text);
	if (!sent)
		hang_up(f, t);
	return sent;
}

/* trace_ask() - Ask what decides about a flow; flow_cache_explained() has the answer
 * Return: false if it cannot be asked now
 */
bool trace_ask(struct fabric *f, const struct flow *flow)
{
	struct trace *t = trace_open(f);
	char what[320];
	uint32_t i = 0;

	while (t && i < ASKED_MAX && t->asked[i].number)
		i++;
	if (!t || i == ASKED_MAX)
		return false;
	flow_key_print(&flow->key, flow->in_port, what, sizeof what);
	if (!request(f, t, (uint64_t)flow->number * ASKED_MAX + i, "ofproto/trace", json_pack("[s, s]", f->flow_cache->bridge[flow->sw->index], what)))
		return false;
	t->asked[i] = (struct question){.number = flow->number, .key = flow->key};
	if (++t->open >= MANY && !f->flow_cache->holds) {
		f->flow_cache->holds = true;
		t->holds_until_ns = wall_ns() + HOLD_NS;
	}
	return true;
}

/* trace_holds() - Are so many questions open that the clock had better wait for the answers? */
bool trace_holds(struct flow_cache *c)
{
	if (c->holds && wall_ns() > c->trace->holds_until_ns)
		c->holds = false;
	return c->holds;
}

/* trace_purge() - Have Open vSwitch forget what it has cached
 * Return: false if it cannot be asked
 */
bool trace_purge(struct fabric *f)
{
	struct trace *t = trace_open(f);

	return t && request(f, t, PURGE, "revalidator/purge", json_array());
}

void trace_free(struct fabric *f)
{
	struct trace *t = f->flow_cache->trace;

	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	free(t->answer);
	free(t);
}
