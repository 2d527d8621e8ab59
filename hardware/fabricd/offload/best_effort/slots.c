/* Best-effort aggregation: which slot of the pools a job's lanes use
 *
 * Theory of Operation
 *
 * A lane keeps its slot from block to block, the same on every accelerator.  A hash of
 * job and lane gives it; if another lane of the job has that slot, the hash is repeated
 * with another salt.  So no two lanes of a job have one slot, as long as there are enough.
 *
 * If another job has the slot, the lane gets one that no lane of its own job uses.  The
 * parameter server says which, with the sum of the block that has met the other job; the
 * lane's next block goes there.  So jobs that share a pool move apart without knowing of
 * each other.
 *
 * Source: the code published with ATP (github.com/in-ATP/ATP): HashTable::HashNew_crc in
 * common/HashTable.cc (no slot twice), HashNew_predefine as server/ParameterServer.cc
 * uses it for packets with the bit isSWCollision.
 */
#include <stdlib.h>

#include "offload/best_effort/best_effort.h"

/* A mix of job, lane and salt (Stafford's variant 13 of MurmurHash3's finalizer) */
static uint32_t candidate(const struct lane_slots *t, uint32_t lane, uint64_t salt)
{
	uint64_t x = ((uint64_t)t->job << 32 | lane) + salt * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	return (uint32_t)(x % t->slots);
}

static void use(struct lane_slots *t, uint32_t lane, uint32_t slot)
{
	t->of[lane] = (uint16_t)slot;
	t->used += !t->lanes[slot]++;
}

/* lane_slots_new() - A slot for each of a job's lanes
 * @slots:	Slots of a pool, 1 to 65536; fewer than lanes: then some have one together
 */
struct lane_slots *lane_slots_new(uint32_t job, uint32_t lanes, uint32_t slots)
{
	struct lane_slots *t = calloc(1, sizeof *t);

	if (!t || !(t->of = calloc(lanes, sizeof *t->of)) || !(t->lanes = calloc(slots, sizeof *t->lanes)))
		abort();
	t->job = job;
	t->slots = slots;
	for (uint32_t lane = 0; lane < lanes; lane++) {
		uint32_t slot = candidate(t, lane, 0);
		for (uint64_t salt = 1; t->lanes[slot] && t->used < slots; salt++)
			slot = candidate(t, lane, salt);
		use(t, lane, slot);
	}
	return t;
}

/* lane_slots_move() - A lane gets a slot that no lane has, if there is one
 * Return: its slot from now on
 */
uint16_t lane_slots_move(struct lane_slots *t, uint32_t lane)
{
	if (t->used == t->slots)
		return t->of[lane];
	uint32_t slot = t->of[lane], old = slot;
	while (t->lanes[slot])
		slot = candidate(t, lane, UINT64_MAX - t->moves++);
	t->used -= !--t->lanes[old];
	use(t, lane, slot);
	return t->of[lane];
}

void lane_slots_free(struct lane_slots *t)
{
	if (!t)
		return;
	free(t->of);
	free(t->lanes);
	free(t);
}
