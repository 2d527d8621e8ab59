/* What OpenFlow can match on in a frame, and rewriting it (flow_key.c). */
#ifndef FAST_PATH_FLOW_KEY_H
#define FAST_PATH_FLOW_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text;

#define FLOW_TAGGED 0x1000
#define FLOW_GROWS 4 /* bytes that a rewrite may add: a VLAN tag */

/* Of a whole IPv4 packet with UDP, with or without one VLAN tag; nothing else has a key */
struct flow_key {
	uint16_t sw, port; /* where it came in: the switch's index, and its port; 0: not told */
	uint8_t mac[12];
	uint32_t src, dst;
	uint16_t sport, dport;
	uint16_t vlan; /* the tag, FLOW_TAGGED if there is one, as Open vSwitch has it */
	uint8_t tos, ttl;
};
_Static_assert(sizeof(struct flow_key) == 32, "no holes: keys are compared as bytes");

bool flow_key_of(struct flow_key *key, const uint8_t *data, size_t len);
bool flow_key_has_checksum(const struct flow_key *key, const uint8_t *data);
size_t flow_key_headers(const struct flow_key *key);
void flow_key_join(struct flow_key *mask, const struct flow_key *with);
void flow_key_overlay(struct flow_key *key, const struct flow_key *with, const struct flow_key *mask);
bool flow_key_same_packet(const struct flow_key *a, const struct flow_key *b);
bool flow_key_same_headers(const struct flow_key *a, const struct flow_key *b);
size_t flow_key_rewrite(const struct flow_key *to, uint8_t *data, size_t len);
void flow_key_print(const struct flow_key *key, struct text *t);

#endif
