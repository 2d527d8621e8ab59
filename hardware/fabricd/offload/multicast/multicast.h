/* Multicast: what its files share. */
#ifndef MULTICAST_H
#define MULTICAST_H

#include "offload/multicast/chunks.h"
#include "offload/offload.h"

/* A member's state: one operation at a time */
struct multicast {
	uint32_t group_ip, trees, number;
	bool armed, started, waits; /* waits: for a sender that is late */
	struct layout layout;
	struct offload_wr arm;
	uint64_t wr_id, chunks, missing; /* missing: of the others' */
	uint64_t next, end;		 /* own chunks not yet sent */
	uint64_t *here;
	size_t here_room;
	uint32_t chains;
	ps_t begin, slack, interval, next_send, pace_event, turn, cutoff, last, visible;
	uint64_t silent[]; /* of each member, over each tree: how many chunks in a row did not come */
};

/* EV_OFFLOAD of this kind: a time in `what`, and what it is for */
enum alarm { ALARM_PACE, ALARM_TURN, ALARM_CUTOFF };

/* multicast.c */
bool multicast_sending(const struct multicast *s);
void multicast_alarm(struct fabric *f, struct member *m, enum alarm kind, ps_t *at, ps_t t);
uint8_t *multicast_memory(const struct member *m, uint32_t key, uint64_t at, uint64_t bytes);
ps_t multicast_on_cable(const struct member *m, uint64_t frames);
ps_t multicast_turn_after(const struct fabric *f, const struct member *m, uint32_t sender, uint64_t chunk);
bool multicast_complete(const struct multicast *s);
void multicast_ended(struct fabric *f, struct member *m);

/* heard.c */
#define MULTICAST_NETWORK_SHIFT 24 /* a tree's address is of the network below that of the one before */
uint32_t multicast_ip(const struct multicast *s, uint64_t chunk);
uint64_t *multicast_silent(struct multicast *s, uint32_t member, uint64_t chunk);
void multicast_listen(struct fabric *f, struct member *m);
bool multicast_somebody_late(const struct multicast *s);

/* receive.c */
bool multicast_receive(struct fabric *f, struct member *m, const struct roce_packet *pkt, struct frame *fr);


/* send.c */
extern const struct tx_ops multicast_tx;

#endif
