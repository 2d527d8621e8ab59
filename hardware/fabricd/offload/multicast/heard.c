/* Multicast: of whom, and over which tree, something has come */
#include <stdio.h>

#include "engine/fabric.h"
#include "nic/nic.h"
#include "offload/multicast/chunks.h"
#include "offload/multicast/multicast.h"
#include "offload/offload.h"

#define SILENT_CHUNKS 64
#define LATE_CHUNKS 8

/* multicast_ip() - The address of the tree that a chunk takes */
uint32_t multicast_ip(const struct multicast *s, uint64_t chunk)
{
	return s->group_ip - ((uint32_t)(chunk % s->trees) << MULTICAST_NETWORK_SHIFT);
}

/* multicast_silent() - How many chunks in a row have not come of a member, over the tree that a chunk takes */
uint64_t *multicast_silent(struct multicast *s, uint32_t member, uint64_t chunk)
{
	return &s->silent[member * s->trees + chunk % s->trees];
}

/* Every @every-th of a part's chunks from @c on: how many there are, and how many of them are here */
static uint64_t here_of(const struct multicast *s, uint32_t part, uint64_t c, uint32_t every, uint64_t *here)
{
	uint64_t count = 0;

	for (*here = 0; c < part_first(&s->layout, part + 1); c += every, count++)
		*here += s->here[c / 64] >> c % 64 & 1;
	return count;
}

/* multicast_listen() - Something is missing: is there a sender of whom nothing comes any more? */
void multicast_listen(struct fabric *f, struct member *m)
{
	struct multicast *s = m->state;

	for (uint32_t part = 0; part < s->layout.parts; part++) {
		uint32_t from = s->layout.root == UINT32_MAX ? part : s->layout.root;
		for (uint32_t k = 0; k < s->trees; k++) {
			uint64_t first = part_first(&s->layout, part) + k, *silent = multicast_silent(s, from, first), here;
			uint64_t due = here_of(s, part, first, s->trees, &here);
			*silent = here ? 0 : *silent + due;
			if (*silent < SILENT_CHUNKS)
				continue;
			char why[96];
			snprintf(why, sizeof why, "nothing that rank %u multicasts comes to rank %u%s",
				 m->group->member[from].nic->rank, m->nic->rank, s->trees > 1 ? " over one of its trees" : "");
			offload_failed(f, m, why);
			return;
		}
	}
}

/* multicast_somebody_late() - Is there a sender of much, of whom nothing has come? */
bool multicast_somebody_late(const struct multicast *s)
{
	for (uint32_t part = 0; part < s->layout.parts; part++) {
		uint64_t here;
		if (here_of(s, part, part_first(&s->layout, part), 1, &here) >= LATE_CHUNKS && !here)
			return true;
	}
	return false;
}
