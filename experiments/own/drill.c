/* DRILL(d, m) (Ghorbani, Yang, Godfrey, Ganjali, Firoozshahian, SIGCOMM 2017): d ports that are drawn, and the m best of before
 *
 * The frame leaves by the one that is free first.  The m best of those that were looked at are remembered for the next.
 */
#include "railbed.h"

enum { DRAWN, KEPT, MOST = 16 };

struct drill {
	uint32_t kept, place[MOST]; /* the best of before, the best one first */
};

static uint32_t pick(struct railbed_choice *choice)
{
	struct drill *own = choice->set;
	uint32_t d = (uint32_t)choice->parameter[DRAWN], m = (uint32_t)choice->parameter[KEPT];
	uint32_t seen = 0, place[2 * MOST];
	double load[2 * MOST];

	for (uint32_t k = 0; k < own->kept + d; k++) {
		uint32_t at = k < own->kept ? own->place[k] : choice->turn[railbed_random(choice) % choice->turns], i = 0;
		double its = railbed_load(choice, at);
		while (i < seen && place[i] != at)
			i++;
		if (i < seen)
			continue; /* known already */
		for (i = seen++; i && its < load[i - 1]; i--) {
			place[i] = place[i - 1];
			load[i] = load[i - 1];
		}
		place[i] = at;
		load[i] = its;
	}
	own->kept = seen < m ? seen : m;
	memcpy(own->place, place, own->kept * sizeof *place);
	return place[0];
}

RAILBED_ADAPTIVE(2,
	.summary = "the best of some ports that are drawn and of the best before", .source = "Ghorbani et al., SIGCOMM 2017",
	.set_bytes = sizeof(struct drill),
	.parameters = {
		[DRAWN] = {"d", RAILBED_NUMBER, {2}, 1, MOST, "ports that are drawn"},
		[KEPT] = {"m", RAILBED_NUMBER, {1}, 0, MOST, "that are remembered"},
	},
	.pick = pick);
