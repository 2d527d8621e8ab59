/* Offloaded collectives, as workers ask for them: offload/ fills the table in. */
#ifndef WORKER_SERVICES_H
#define WORKER_SERVICES_H

#include <stdint.h>

#define GROUP_ARGS 8
#define GROUP_MEMBERS_MAX 4096
#define GROUP_KIND_BYTES 16

struct fabric;
struct nic;
struct worker;

/* A rank's call for a group: what the arguments mean is the kind's matter */
struct group_call {
	char kind[GROUP_KIND_BYTES + 1]; /* its name */
	uint32_t tag, cookie, count;	 /* count: of members */
	uint64_t args[GROUP_ARGS];
};

/* A request of a member: what its arguments mean is the kind's matter */
struct offload_wr {
	uint64_t wr_id, in, out, count, args[4];
	uint32_t in_key, out_key;
	uint8_t collective, reduction, element, flags;
};

struct worker_services {
	/* A rank calls for a group, leaves it.  Return: NULL, or what is wrong */
	const char *(*group)(struct fabric *f, struct worker *w, const struct group_call *asked, const uint32_t *ranks);
	const char *(*leave)(struct fabric *f, struct worker *w, uint32_t id);
	/* Return: NULL, or what is wrong with a request to a group */
	const char *(*check)(const struct worker *w, uint32_t id, const struct offload_wr *wr);
	/* A request has reached the NIC */
	void (*post)(struct fabric *f, struct worker *w, uint32_t id, const struct offload_wr *wr);
	/* A session is over */
	void (*ended)(struct fabric *f, struct worker *w);
	/* Why a group was refused, "" if it was not */
	const char *(*reason)(const struct nic *n, uint32_t id);
};

#endif
