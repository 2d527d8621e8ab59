/* Which of several equal ports a frame takes, as Open vSwitch's `multipath` action has it
 *
 * Theory of Operation
 *
 * Where a rule hashes over UDP ports, every source port is a flow of its own, and a
 * queue pair that sprays has thousands.  But all that the source port decides is the
 * link.  So what becomes of one frame is what becomes of all that are alike but for
 * their source ports and get the same link.
 *
 * The hash is worked out here.  Open vSwitch tells of each frame that it is asked about
 * which link it got (`ofproto/trace`).  Only when that has agreed so often that the odds
 * of an accident are one in 2^ENOUGH_BITS is the hash relied on, and no longer when it
 * disagrees.  (Open vSwitch hashes otherwise if it was built for newer processors.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fast_path/ecmp.h"
#include "fast_path/trace_text.h"

#define PROTO_UDP 17
#define ENOUGH_BITS 32

static uint32_t rotated(uint32_t word, int bits)
{
	return word << bits | word >> (32 - bits);
}

static uint32_t add(uint32_t hash, uint32_t word)
{
	return rotated(hash ^ rotated(word * 0xcc9e2d51, 15) * 0x1b873593, 13) * 5 + 0xe6546b64;
}

/* Addresses and ports go into it as they lie in the packet */
static inline uint32_t of_headers(uint32_t basis, const struct flow_key *key)
{
	uint32_t hash = add(basis, __builtin_bswap32(key->src ^ key->dst));

	hash = add(hash, PROTO_UDP);
	return add(hash, __builtin_bswap16(key->sport ^ key->dport));
}

static inline uint32_t finished(uint32_t hash)
{
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

static inline uint32_t hash_of(const struct ecmp *m, const struct flow_key *key)
{
	return finished(of_headers(m->basis, key) ^ m->basis);
}

/* ecmp_hash_with() - Likewise with a word that Open vSwitch does not look at */
uint32_t ecmp_hash_with(uint32_t basis, const struct flow_key *key, uint32_t word)
{
	return finished(add(of_headers(basis, key), word) ^ basis);
}

/* ecmp_link() - The link of a frame */
uint32_t ecmp_link(const struct ecmp *m, const struct flow_key *key)
{
	return hash_of(m, key) % m->links;
}

/* ecmp_relied() - Open vSwitch has told of a frame's link: is the hash relied on from now on? */
bool ecmp_relied(struct hash_trust *t, const struct ecmp *m, const struct flow_key *key, uint32_t link)
{
	uint32_t hash = hash_of(m, key), i = 0;

	t->differs |= hash % m->links != link;
	while (i < t->count && t->seen[i] != hash)
		i++;
	if (t->bits < ENOUGH_BITS && m->links > 1 && i == t->count) {
		t->seen[t->count++] = hash;
		t->bits += 31 - (uint32_t)__builtin_clz(m->links);
	}
	return t->bits >= ENOUGH_BITS && !t->differs;
}

/* Does an action look at nothing and change no header? */
static bool is_plain(const char *line, size_t len)
{
	static const char to_register[] = "->NXM_NX_REG";

	return !strncmp(line, "output:", 7) || !strncmp(line, "resubmit(", 9) ||
	       (!strncmp(line, "load:", 5) && memmem(line, len, to_register, sizeof to_register - 1));
}

/* ecmp_told() - Did one hash decide, and nothing else that looks at UDP source ports but rules?
 * @link:	That it led to
 * @text:	An answer of `ofproto/trace`
 */
bool ecmp_told(struct ecmp *m, uint32_t *link, const char *text)
{
	static const char now[] = " is now ";
	struct ecmp met = {0};
	int met_count = 0;
	size_t len;

	*m = met;
	for (const char *line = text; *line; line += len + (line[len] == '\n')) {
		line += strspn(line, " ");
		len = strcspn(line, "\n");
		if (trace_line_is_caption(line, len) || is_plain(line, len))
			continue;
		int end = 0;
		sscanf(line, "multipath(symmetric_l3l4+udp,%u,modulo_n,%u,0,NXM_NX_REG%n", &met.basis, &met.links, &end);
		if (!end || ++met_count > 1 || line[len] != '\n')
			return false;
		line += len + 1;
		len = strcspn(line, "\n");
		const char *value = memmem(line, len, now, sizeof now - 1);
		if (!value || !met.links)
			return false;
		*link = (uint32_t)strtoul(value + sizeof now - 1, NULL, 0);
	}
	*m = met;
	return met.links;
}
