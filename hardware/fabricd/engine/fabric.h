/* The fabric: everything that exists in one emulated cluster network.
 *
 * One `struct fabric` per process; every function gets it (or a part of it) as an argument.  It only says who is
 * there: what a switch, a NIC or a worker is, the header of its room says.
 */
#ifndef ENGINE_FABRIC_H
#define ENGINE_FABRIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/ahead.h"
#include "engine/clock.h"
#include "engine/event.h"

#define NAME_BYTES 48

struct fabric {
	char id[16];
	uint64_t seed;
	struct clock clock;
	struct heap heap; /* all events; while it is divided those that concern all of it */
	struct division *division; /* division.h; NULL: it is never divided */
	struct ahead ahead;
	int epoll_fd;
	volatile bool stop; /* set by a signal, too */
	bool failed;	    /* it stops because it cannot go on */
	bool stalled_reported;
	char error[512];
	json_t *config;
	int64_t patience_ns;
	ps_t reaction, reaction_base; /* of the controller */
	bool tells_rates;	      /* it hears of cables' rates that change */
	uint64_t last_port_event;     /* id of the last event that the controller answers */
	const struct listener *listener; /* report.h */
	struct event_log *log;		 /* control/log.c */
	/* link/ */
	const struct impairment *impairment;
	struct node **nodes; /* switches, NICs, accelerators: by node index */
	uint32_t node_count, port_count;
	struct cable *cables;
	uint32_t cable_count;
	struct change *changes; /* all of them, freed at the end */
	uint64_t last_change;
	uint64_t wiring; /* goes up when a cable goes up or down, or is plugged in elsewhere */
	struct frame *free_frames;
	struct room *free_rooms; /* of full frames */
	struct passage *free_passages, **passage_slabs;
	size_t passage_slab_count, frame_slab_count;
	void **frame_slabs;
	uint32_t frame_room;
	uint32_t turn_bytes; /* credit of a turn by weight 1 (link/scheduler.c) */
	struct capture *captures;
	bool stamps; /* some control asks switches for telemetry */
	/* plugin/ */
	struct plugin *plugins; /* code of users' own; it ends with the process */
	/* fast_path/ */
	struct flow_cache *flow_cache; /* NULL: every frame goes through Open vSwitch */
	/* switch/ */
	struct sw *switches;
	uint32_t switch_count;
	struct ovs *ovs;
	uint64_t deadlocks;
	/* accelerator/ */
	struct accelerator *accelerators;
	uint32_t accelerator_count;
	/* nic/ */
	struct nic *nics;
	uint32_t nic_count;
	json_t *known_transports, *named_transports; /* all that were ever told; those that workers name (config/transports.c) */
	const struct transports *transports;
	const struct nic_receivers *receivers;
	struct scale_up *scale_ups;
	uint32_t scale_up_count;
	/* worker/ */
	struct worker *workers; /* as many as NICs */
	uint32_t programs; /* sessions of programs */
	struct worker *over; /* programs of which nothing is left, until nobody looks at them any more */
	const struct worker_services *services;
	struct sync **syncs;	/* by hash */
	struct turn *turns;	/* how far workers let the clock go, by worker/clock.c */
	uint8_t gathered[9000];	/* a packet's payload of several pieces, until the next one is: an MTU at most */
	uint64_t worker_bytes;	/* that a worker may register: what nobody has touched yet is charged to us */
	/* offload/ */
	struct group *groups, *last_group, **gathering; /* in the order of their first calls; by hash */
	uint32_t group_count;
	uint32_t last_job;
	/* fault/ */
	struct fault *faults, *healed;
	uint64_t last_fault_order;
	/* control/ */
	int control_fd;
	struct control_conn *conns;
	struct sampler *sampler; /* NULL: no time series */
	struct part *parts;	 /* processes without which it cannot go on */
};

bool config_fail(struct fabric *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
