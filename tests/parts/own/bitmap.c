/* fabricd's bitmap.c written against railbed.h: it must give the same figures */
#include "railbed.h"

enum { MARK, LOSS, MOST, SATURATED };

struct bitmap {
	uint32_t at, order, waiting;
};

static void start(struct railbed_paths *paths)
{
	struct bitmap *own = paths->state;

	own->at = 0;
	own->order = (uint32_t)railbed_random(paths) & (paths->entropies - 1);
}

static uint32_t next(struct railbed_paths *paths)
{
	struct bitmap *own = paths->state;
	uint32_t entropy = own->at ^ own->order;

	if (++own->at == paths->entropies)
		start(paths);
	return entropy;
}

static uint32_t pick(struct railbed_paths *paths)
{
	struct bitmap *own = paths->state;
	uint8_t *skips = paths->entropy;
	uint32_t entropy = next(paths);

	while (skips[entropy]) {
		bool saturated = own->waiting > paths->parameter[SATURATED] * paths->entropies;
		own->waiting -= --skips[entropy] == 0;
		if (saturated)
			break;
		entropy = next(paths);
	}
	return entropy;
}

static void skip(struct railbed_paths *paths, uint32_t entropy, double times)
{
	struct bitmap *own = paths->state;
	uint8_t *skips = (uint8_t *)paths->entropy + entropy, before = *skips;

	*skips = (uint8_t)fmin(before + times, paths->parameter[MOST]);
	own->waiting += !before && *skips;
}

static void returned(struct railbed_paths *paths, const struct railbed_returned *back)
{
	if (back->marked)
		skip(paths, back->entropy, paths->parameter[MARK]);
}

static void lost(struct railbed_paths *paths, uint32_t entropy)
{
	skip(paths, entropy, paths->parameter[LOSS]);
}

RAILBED_MULTIPATH(2,
	.state_bytes = sizeof(struct bitmap), .entropy_bytes = 1, .marks = true,
	.parameters = {
		[MARK] = {"mark", RAILBED_NUMBER, {1}, 0, 255}, [LOSS] = {"loss", RAILBED_NUMBER, {4}, 0, 255},
		[MOST] = {"most", RAILBED_NUMBER, {15}, 1, 255}, [SATURATED] = {"saturated", RAILBED_NUMBER, {0.5}, 0, 1},
	},
	.start = start, .pick = pick, .returned = returned, .lost = lost);
