/* A vector in chunks of one packet each, numbered through: workloads/offloads/chunking.py cuts in the same way. */
#ifndef CHUNKS_H
#define CHUNKS_H

#include <stdint.h>

/* How a vector is cut: into one part of the root's, or one of each member's, and these into chunks */
struct layout {
	uint32_t payload, parts, root; /* root: UINT32_MAX if every member has a part */
	uint64_t each, longer; /* bytes of a part; so many have an element more */
	uint32_t element;
	uint64_t long_chunks, short_chunks; /* of a part */
};

struct layout layout_of(uint64_t count, uint32_t element, uint32_t payload, uint32_t parts, uint32_t root);
uint64_t part_first(const struct layout *l, uint32_t part);
uint64_t part_chunks(const struct layout *l, uint32_t part);
uint64_t layout_chunks(const struct layout *l);
uint64_t chunk_offset(const struct layout *l, uint64_t chunk, uint32_t *bytes);
uint32_t sender_of(const struct layout *l, uint64_t chunk);

#endif
