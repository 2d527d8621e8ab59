/* FlowBender (Kabbani, Vamanan, Hasan, Duchene, CoNEXT 2014): one path, and another one when a round trip had many marks
 *
 * A round trip is congested if more than `threshold` of its packets were marked.  After `rounds` of them in a row, and after
 * a timeout, the queue pair takes another entropy.
 */
#include "railbed.h"

enum { THRESHOLD, ROUNDS };

struct bender {
	uint32_t entropy, congested;
	uint64_t end, delivered, marked; /* of the round trip under way */
};

static void move(struct railbed_paths *paths)
{
	struct bender *own = paths->state;
	uint32_t others = paths->entropies - 1;

	own->congested = 0;
	if (others)
		own->entropy = (own->entropy + 1 + (uint32_t)(railbed_random(paths) % others)) % paths->entropies;
}

static uint32_t pick(struct railbed_paths *paths)
{
	const struct bender *own = paths->state;

	return own->entropy;
}

/* The round trip ends when all has come that had left when it began */
static void returned(struct railbed_paths *paths, const struct railbed_returned *back)
{
	struct bender *own = paths->state;

	own->marked += back->marked;
	if (paths->delivered < own->end || paths->delivered == own->delivered)
		return;
	double share = (double)own->marked / (double)(paths->delivered - own->delivered);
	own->congested = share > paths->parameter[THRESHOLD] ? own->congested + 1 : 0;
	if (own->congested >= paths->parameter[ROUNDS])
		move(paths);
	own->marked = 0;
	own->delivered = paths->delivered;
	own->end = paths->sent;
}

RAILBED_MULTIPATH(2,
	.summary = "one path, and another one when a round trip had many marks", .source = "Kabbani et al., CoNEXT 2014",
	.state_bytes = sizeof(struct bender), .marks = true, .one_path = true,
	.parameters = {
		[THRESHOLD] = {"threshold", RAILBED_NUMBER, {0.05}, 0, 1, "share of marks above which a round trip is congested"},
		[ROUNDS] = {"rounds", RAILBED_NUMBER, {1}, 1, 1e6, "of them in a row after which it moves"},
	},
	.pick = pick, .returned = returned, .timeout = move);
