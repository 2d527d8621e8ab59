/* Which of several equal ports a frame takes, as Open vSwitch's `multipath` action has it (ecmp.c). */
#ifndef FAST_PATH_ECMP_H
#define FAST_PATH_ECMP_H

#include <stdbool.h>
#include <stdint.h>

#include "fast_path/flow_key.h"

/* multipath(symmetric_l3l4+udp, basis, modulo_n, links) */
struct ecmp {
	uint32_t basis;
	uint32_t links; /* 0: there is none */
};

/* How often the link that was worked out was the one that Open vSwitch told of */
struct hash_trust {
	uint32_t seen[32]; /* each hash counts once */
	uint32_t count, bits;
	bool differs;
};

uint32_t ecmp_hash_with(uint32_t basis, const struct flow_key *key, uint32_t word);
uint32_t ecmp_link(const struct ecmp *m, const struct flow_key *key);
bool ecmp_relied(struct hash_trust *t, const struct ecmp *m, const struct flow_key *key, uint32_t link);
bool ecmp_told(struct ecmp *m, uint32_t *link, const char *text);

#endif
