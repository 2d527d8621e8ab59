/* What the outside is told, and what it has to answer.
 *
 * Rooms below report what has happened without knowing who listens: control/ fills the table in.
 */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric;
struct port;

enum report {
#define REPORT(kind, name, fields, meaning) REPORT_##kind,
#include "engine/reports.def"
#undef REPORT
};

/* Who was asked: was anybody there, and does the clock stand still for an answer? */
struct asked {
	bool told, waits;
};

struct listener {
	/* Tell every subscriber; takes the reference to @fields */
	void (*event)(struct fabric *f, enum report kind, json_t *fields);
	/* Tell nobody, but keep it in the log; takes the reference */
	void (*note)(struct fabric *f, enum report kind, json_t *fields);
	/* Tell those who act as @who, and stand still until they have answered the event of that id; takes the reference */
	struct asked (*ask)(struct fabric *f, const char *who, uint64_t id, json_t *event);
	/* Stand still until those who settle events have answered this one, which was sent to them */
	void (*settle)(struct fabric *f, uint64_t id);
	bool (*acts)(const struct fabric *f, const char *who); /* is anybody there who acts as @who? */
	bool (*waits)(const struct fabric *f, uint64_t id);    /* is an answer to that event still waited for? */
	/* A port's class was paused by the other end of its cable, or is free again */
	void (*pause)(struct fabric *f, const struct port *p, unsigned class, bool on);
};

const char *report_name(enum report kind);
void report_event(struct fabric *f, enum report kind, json_t *fields);
void report_note(struct fabric *f, enum report kind, json_t *fields);
struct asked report_ask(struct fabric *f, const char *who, uint64_t id, json_t *event);
void report_settle(struct fabric *f, uint64_t id);
bool report_acts(const struct fabric *f, const char *who);
bool report_waits(const struct fabric *f, uint64_t id);
void report_window(struct fabric *f);
void report_pause(struct fabric *f, const struct port *p, unsigned class, bool on);

#endif
