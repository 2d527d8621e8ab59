/* Holds: the virtual clock stands still for an answer
 *
 * Theory of Operation
 *
 * With the virtual clock, what the controller or the testbed is told at some
 * emulated time takes effect at that time, in every run.  So time stands still
 * until it has answered (`settled`).  Each connection that was told is a hold of
 * its own; the first answer ends all holds of its event.
 *
 * A hold ends without an answer when its connection closes or its process is
 * judged dead (base/patience.c).  From then on that connection is not waited for,
 * until it says something.  Events without an answer are counted: a run with such
 * events is not called exact.
 *
 * A controller that an injected fault keeps from running is not waited for.
 *
 * `ping` asks a controller for a sign of life when it has nothing else to answer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/patience.h"
#include "base/wall.h"
#include "control/control.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "fault/fault.h"
#include "offload/offload.h"

struct hold {
	uint64_t id;
	struct control_conn *conn;
};

/* clock_waits_for() - Is an answer to the event of that id still waited for? */
bool clock_waits_for(const struct fabric *f, uint64_t id)
{
	const struct clock *c = &f->clock;

	for (uint32_t i = 0; i < c->hold_left; i++)
		if (c->holds[i].id == id)
			return true;
	return false;
}

/* clock_waits_up_to() - Is an answer to that event, or to one before it, still waited for? */
bool clock_waits_up_to(const struct fabric *f, uint64_t id)
{
	const struct clock *c = &f->clock;

	for (uint32_t i = 0; i < c->hold_left; i++)
		if (c->holds[i].id <= id)
			return true;
	return false;
}

/* Stand still here (virtual clock) until @conn has answered the event of that id
 * Return: false if it is not waited for
 */
static bool hold(struct fabric *f, uint64_t id, struct control_conn *conn)
{
	struct clock *c = &f->clock;

	if (conn->silent || (strcmp(conn->acts, "agent") && controller_made_to_hang(f))) {
		c->controller_timeouts += !clock_waits_for(f, id);
		return false;
	}
	if (c->hold_left == c->hold_room) {
		c->hold_room = c->hold_room ? 2 * c->hold_room : 64;
		c->holds = realloc(c->holds, c->hold_room * sizeof *c->holds);
		if (!c->holds)
			abort();
	}
	if (!conn->holds++ && !conn->pinged)
		patience_begin(&conn->patience);
	c->hold = c->now;
	c->holds[c->hold_left++] = (struct hold){.id = id, .conn = conn};
	return true;
}

static void let_go(struct clock *c, uint32_t i)
{
	c->holds[i].conn->holds--;
	c->holds[i] = c->holds[--c->hold_left];
}

/* clock_answered() - An event has been answered
 * Return: whether it was waited for
 */
bool clock_answered(struct fabric *f, uint64_t id)
{
	struct clock *c = &f->clock;
	bool waited = false;

	for (uint32_t i = c->hold_left; i--;)
		if (c->holds[i].id == id) {
			let_go(c, i);
			waited = true;
		}
	return waited;
}

/* clock_unanswered() - A connection will not answer: nobody waits for it any more
 * @why:	In words
 */
void clock_unanswered(struct fabric *f, struct control_conn *conn, const char *why)
{
	struct clock *c = &f->clock;
	uint32_t events = 0;

	for (uint32_t i = c->hold_left; i--;)
		if (c->holds[i].conn == conn) {
			uint64_t id = c->holds[i].id;
			let_go(c, i);
			events += !clock_waits_for(f, id);
		}
	c->controller_timeouts += events;
	control_event(f, REPORT_CONTROLLER_TIMEOUT,
		      json_pack("{s:s, s:i, s:i, s:s}", "who", conn->acts[0] ? conn->acts : "controller", "pid",
				conn->patience.pid, "events", (int)events, "reason", why));
	offload_unanswered(f);
}

/* control_ask() - See report.h */
struct asked control_ask(struct fabric *f, const char *who, uint64_t id, json_t *event)
{
	struct asked a = {false, false};

	for (struct control_conn *c = f->conns; c; c = c->next)
		if (!c->closing && !strcmp(c->acts, who)) {
			control_send(f, c, json_incref(event));
			a.waits = hold(f, id, c) || a.waits;
			a.told = true;
		}
	json_decref(event);
	return a;
}

/* control_settle() - Likewise */
void control_settle(struct fabric *f, uint64_t id)
{
	for (struct control_conn *c = f->conns; c; c = c->next)
		if (c->settles && !c->closing)
			hold(f, id, c);
}

/* control_acts() - Likewise */
bool control_acts(const struct fabric *f, const char *who)
{
	for (const struct control_conn *c = f->conns; c; c = c->next)
		if (!c->closing && !strcmp(c->acts, who))
			return true;
	return false;
}

/* controller_ask() - Stand still until the controller has done all that it was told before
 *
 * What a controller does that stood still and goes on again, with events that it
 * did not answer in time, then takes effect now, in every run.
 */
void controller_ask(struct fabric *f)
{
	uint64_t id = ++f->last_port_event;

	for (struct control_conn *c = f->conns; c; c = c->next)
		if (!strcmp(c->acts, "controller"))
			c->silent = c->silent && c->closing; /* it has another chance */
	control_ask(f, "controller", id,
		    json_pack("{s:s, s:I, s:s, s:b, s:s, s:{}, s:o}", "event", report_name(REPORT_ACT), "id", (json_int_t)id, "fault", "", "on",
			      false, "to", "controller", "spec", "time_ns", ns_json(f->clock.now)));
}

/* clock_look_after() - Look at those who have been told something and have not answered */
void clock_look_after(struct fabric *f)
{
	for (struct control_conn *conn = f->conns; conn; conn = conn->next) {
		char why[128];
		bool agent = !strcmp(conn->acts, "agent");
		if (conn->closing || conn->silent || !(conn->holds || conn->pinged))
			continue;
		if (!patience_look(&conn->patience, f->patience_ns, agent, why, sizeof why))
			continue;
		int64_t heard = conn->patience.heard_ns;
		control_readable(f, conn);
		if (conn->closing || conn->patience.heard_ns != heard)
			continue; /* the word was there */
		conn->silent = true;
		f->clock.controller_silent += !agent && !controller_made_to_hang(f);
		clock_unanswered(f, conn, why);
	}
}

/* controllers_ping() - Ask controllers for a sign of life; one that is told to stand still is left alone */
void controllers_ping(struct fabric *f)
{
	for (struct control_conn *c = f->conns; c; c = c->next) {
		if (c->closing || c->pinged || c->silent || strcmp(c->acts, "controller") || controller_made_to_hang(f))
			continue;
		if (!c->holds)
			patience_begin(&c->patience);
		c->pinged = true;
		control_send(f, c, json_pack("{s:s}", "event", report_name(REPORT_PING)));
	}
}

/* Would its switches get an echo back?  With the virtual clock a word on its way is no silence: that it is not there
 * yet is the machine's doing
 */
static bool echoes(const struct fabric *f, const struct control_conn *c)
{
	if (c->silent || controller_made_to_hang(f))
		return false;
	return f->clock.mode == CLOCK_VIRTUAL || !c->pinged;
}

/* controllers_json() - Those that are connected: does one owe an answer to a `ping`, when was it heard last */
json_t *controllers_json(const struct fabric *f)
{
	json_t *list = json_array();

	for (const struct control_conn *c = f->conns; c; c = c->next)
		if (!c->closing && !strcmp(c->acts, "controller"))
			json_array_append_new(list, json_pack("{s:i, s:b, s:b, s:f}", "pid", c->patience.pid,
							      "answers", !c->pinged && !c->silent, "echoes",
							      echoes(f, c), "heard_s",
							      (double)(wall_ns() - c->patience.heard_ns) / 1e9));
	return list;
}

/* clock_waits_json() - Who is waited for: see `waits` in docs/fabricd-protocol.md */
json_t *clock_waits_json(const struct fabric *f)
{
	json_t *list = json_array();
	int64_t now = wall_ns();

	for (const struct control_conn *c = f->conns; c; c = c->next)
		if (c->holds || (c->pinged && !c->silent && now - c->patience.heard_ns > 1000000000))
			json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:f, s:s%}", "who",
							      c->acts[0] ? c->acts : "controller", "pid", c->patience.pid,
							      "events", (int)c->holds, "silent_s",
							      (double)(now - c->patience.heard_ns) / 1e9, "state",
							      &c->patience.state, (size_t)1));
	return list;
}
