/* Offloaded collectives: groups of ranks for which NICs and accelerators work by themselves
 *
 * A kind of offload is a room with a `struct offload_ops`, which OFFLOAD_KIND makes known.  Ranks ask for it by its name.
 */
#ifndef OFFLOAD_OFFLOAD_H
#define OFFLOAD_OFFLOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/registry.h"
#include "engine/report.h"
#include "nic/nic.h"
#include "transport/qp.h"
#include "worker/services.h"

struct roce_packet;

#define GROUPS_MAX 4096

struct member {
	struct tx_source source;
	struct group *group;
	struct nic *nic;
	struct member *next; /* of the NIC's, with the same hash of the group's number */
	uint32_t index, cookie;
	bool called, leaving, left; /* it has said so; it is no longer there */
	ps_t t;	   /* when it called */
	ps_t acts; /* when that call acts: no worker that runs holds the clock at its own time */
	bool failed; /* its work cannot be done by the offload any more: the workers have been told */
	void *state; /* the kind's */
};

enum group_state { GROUP_GATHERING, GROUP_ASKING, GROUP_OPENING, GROUP_OPEN, GROUP_REFUSED };

struct group {
	struct group *next, *previous;
	struct group *same_hash; /* while it gathers: of those that do */
	uint32_t hash;		 /* of what its members call it by */
	uint32_t id; /* the job's number, from 1: queue pair number of its packets */
	enum group_state state;
	const struct offload_ops *ops;
	uint32_t tag, count, called, left;
	uint64_t args[GROUP_ARGS];
	uint64_t asked;	    /* id of the event that the controller answers, 0: none */
	json_t *granted;    /* the controller's answer */
	bool unanswered;    /* there was none */
	char note[192];     /* why its requests are done another way than asked for; "": they are not */
	char reason[256];   /* why it was refused, or has failed */
	struct member member[];
};

struct offload_ops {
	const char *name;
	bool asks; /* the controller has to say yes */
	const struct tx_ops *tx; /* its members as senders, or NULL */
	/* Return: NULL, or what is wrong with the arguments */
	const char *(*check)(const struct fabric *f, const struct group *g);
	/* All members have called, and it was granted.  Return: NULL, or why it cannot be */
	const char *(*open)(struct fabric *f, struct group *g);
	/* Return: NULL, or what is wrong with the request */
	const char *(*check_wr)(const struct member *m, const struct offload_wr *wr);
	/* A request has reached the NIC */
	void (*post)(struct fabric *f, struct member *m, const struct offload_wr *wr);
	/* A packet for the group.  Return: false if it is not for the member: the caller drops it */
	bool (*receive)(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr);
	/* A member's packet for the switch of its scale-up domain, likewise; or NULL */
	bool (*domain)(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr);
	/* What a member has set for itself by EV_OFFLOAD: does it still matter?  Then it happens */
	bool (*due)(const struct member *m, uint64_t what);
	void (*event)(struct fabric *f, struct member *m, ps_t t, uint64_t what);
	void (*close)(struct fabric *f, struct group *g);
};

REGISTRY(struct offload_ops, offload_kinds);
#define OFFLOAD_KIND(ops) REGISTER(offload_kinds, ops)

extern const struct worker_services offload_services;

/* What a group is told by the controller, or NULL */
static inline const json_t *group_granted(const struct group *g, const char *key)
{
	return json_object_get(g->granted, key);
}

/* group.c */
const char *offload_group(struct fabric *f, struct worker *w, const struct group_call *asked, const uint32_t *ranks);
void group_open_later(struct fabric *f, struct group *g);
void group_number(struct group *g, uint32_t id);
void group_leave(struct fabric *f, struct worker *w, struct member *m);
void group_worker_ended(struct fabric *f, struct worker *w);

/* job.c */
uint64_t job_tell(struct fabric *f, const struct group *g, enum report event, const char **why);
void offload_ask(struct fabric *f, struct group *g);
const char *offload_answered(struct fabric *f, uint64_t event, const json_t *answer);
void offload_refuse(struct fabric *f, uint32_t job, const char *why);
void offload_moved(struct fabric *f, uint32_t job, const char *why);
json_t *offload_jobs(struct fabric *f);
void offload_unanswered(struct fabric *f);
void offload_open(struct fabric *f, struct group *g);
void offload_left(struct fabric *f, struct member *m);
struct member *offload_member(const struct nic *n, uint32_t id);
void offload_later(struct fabric *f, struct member *m, ps_t t, uint64_t what);
bool offload_due(const struct nic *n, uint64_t id, uint64_t what);
void offload_event(struct fabric *f, struct nic *n, uint64_t id, ps_t t, uint64_t what);
bool offload_domain(struct fabric *f, struct scale_up *s, struct frame *fr);
bool offload_receive(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr);
void offload_done(struct fabric *f, struct member *m, uint64_t wr_id, enum wc_status status, uint64_t bytes, ps_t t);
const char *offload_culprit(const struct fabric *f, const struct group *g, char *text, size_t room);
void offload_noted(struct fabric *f, struct group *g, const char *why);
void offload_over(struct fabric *f, struct member *m, const char *why);
void offload_failed(struct fabric *f, struct member *m, const char *why);
void offload_free(struct fabric *f);

#endif
