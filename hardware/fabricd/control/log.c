/* The log: the last events, kept in memory for whoever asks later what has happened
 *
 * Besides what subscribers are told it has what is only noted, such as a link that goes down: the controller learns
 * of that later, and a run's events do not have it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "control/control.h"
#include "engine/fabric.h"

#define KEPT 4096 /* events */

struct event_log {
	uint64_t count; /* that there were */
	json_t *entry[KEPT];
};

/* log_keep() - An event has happened; takes no reference */
void log_keep(struct fabric *f, json_t *event)
{
	if (!f->log && !(f->log = calloc(1, sizeof *f->log)))
		abort();
	json_t **at = &f->log->entry[f->log->count++ % KEPT];
	json_decref(*at);
	*at = json_incref(event);
}

/* log_note() - Something that nobody is told has happened; takes the reference */
void log_note(struct fabric *f, enum report kind, json_t *fields)
{
	json_object_set_new(fields, "event", json_string(report_name(kind)));
	json_object_set_new(fields, "time_ns", ns_json(f->clock.now));
	log_keep(f, fields);
	json_decref(fields);
}

/* The events from the @from-th on, as far as they are still kept */
static json_t *log_json(const struct fabric *f, uint64_t from)
{
	json_t *list = json_array();
	uint64_t count = f->log ? f->log->count : 0, kept = count < KEPT ? count : KEPT;

	for (uint64_t n = from > count - kept ? from : count - kept; n < count; n++)
		json_array_append(list, f->log->entry[n % KEPT]);
	return list;
}

/* log_answer() - To the request `log` */
const char *log_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const json_t *from = json_object_get(request, "from");

	(void)c;
	if (from && (!json_is_integer(from) || json_integer_value(from) < 0))
		return "log: from: a number of events";
	json_object_set_new(answer, "events", log_json(f, from ? (uint64_t)json_integer_value(from) : 0));
	return NULL;
}

/* note_answer() - To the request `note` */
const char *note_answer(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *who = json_string_value(json_object_get(request, "who")),
		   *level = json_string_value(json_object_get(request, "level")),
		   *text = json_string_value(json_object_get(request, "text"));

	(void)c;
	(void)answer;
	if (!who || !text || !level || (strcmp(level, "info") && strcmp(level, "warning") && strcmp(level, "error")))
		return "note: who, level (info, warning or error), text";
	log_note(f, REPORT_NOTE, json_pack("{s:s, s:s, s:s}", "who", who, "level", level, "text", text));
	return NULL;
}

void log_close(struct fabric *f)
{
	for (size_t n = 0; f->log && n < KEPT; n++)
		json_decref(f->log->entry[n]);
	free(f->log);
	f->log = NULL;
}
