/* The control socket: who is connected, what is asked, who is waited for
 *
 * Connections carry JSON, a line each (control.c).  A request has a handler (ops.c, requests.def).  What happens below
 * is reported here by the table of engine/report.h and goes to whoever has subscribed; what has to be answered holds the
 * virtual clock until it is (hold.c); and it stands still at the times that are asked for (until.c).  What has happened is kept, too (log.c).
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/patience.h"
#include "base/units.h"
#include "engine/report.h"

struct fabric;

/* A request that is answered when something has come about */
struct later {
	bool asked;
	json_t *id; /* of the request; NULL: it has none */
	ps_t since;
	bool told; /* carried_out: everybody, of what was due then */
	uint64_t last_event; /* the last that they were told */
};

struct control_conn {
	struct control_conn *next;
	int fd;
	int file; /* came with what was read last, for a request that writes it; -1: none */
	char *in;
	size_t in_bytes, in_room;
	char *out;
	size_t out_bytes, out_room;
	bool subscribed, settles, closing;
	bool starts; /* it has let the clock run, for ranks that it starts */
	uint32_t holds; /* events that it has still to answer */
	bool pinged;	/* asked for a sign of life */
	bool silent;	/* judged dead: not waited for until it says something */
	struct patience patience;
	char acts[16]; /* what `act` events it is for: controller, agent or nothing */
	struct later quiesce, carried_out;
};

bool control_open(struct fabric *f, const char *path);
void control_accept(struct fabric *f);
void control_readable(struct fabric *f, struct control_conn *c);
FILE *control_file(struct control_conn *c);
void control_writable(struct fabric *f, struct control_conn *c);
void control_send(struct fabric *f, struct control_conn *c, json_t *object);
extern const struct listener control_listener;
void control_event(struct fabric *f, enum report kind, json_t *fields);
void control_later(struct later *l, const json_t *request, ps_t now);
void control_idle(struct fabric *f);
void control_carried_out(struct fabric *f);
void control_hear_ends(struct fabric *f);
void control_sweep(struct fabric *f);
void control_close(struct fabric *f);
void control_line(struct fabric *f, struct control_conn *c, const char *text, size_t len);

struct asked control_ask(struct fabric *f, const char *who, uint64_t id, json_t *event);
void control_settle(struct fabric *f, uint64_t id);
bool control_acts(const struct fabric *f, const char *who);
void controller_ask(struct fabric *f);
bool clock_waits_for(const struct fabric *f, uint64_t id);
bool clock_waits_up_to(const struct fabric *f, uint64_t id);
bool clock_answered(struct fabric *f, uint64_t id);
void clock_unanswered(struct fabric *f, struct control_conn *conn, const char *why);
void clock_look_after(struct fabric *f);
void controllers_ping(struct fabric *f);
json_t *clock_waits_json(const struct fabric *f);
json_t *controllers_json(const struct fabric *f);

bool until_rests(struct fabric *f);
void until_look(struct fabric *f);
const char *until_ask(struct fabric *f, const json_t *request);

void log_keep(struct fabric *f, json_t *event);
void log_note(struct fabric *f, enum report kind, json_t *fields);
const char *note_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *log_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
void log_close(struct fabric *f);

json_t *counters_json(struct fabric *f);
const char *credits_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *programs_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *paths_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *parameters_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *profile_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
const char *parts_watch(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
void parts_close(struct fabric *f);

const char *next_job(struct fabric *f);
const char *transports_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer);
bool fabric_idle(const struct fabric *f);

#endif
