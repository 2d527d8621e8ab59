/* In turn, without those that were marked or lost (UEC 1.0, 3.6.16.4: the congestion bitmap)
 *
 * A mark or a loss makes an entropy be passed over so many times, `most` times at most, and each time takes one off.  When
 * more than a share of all wait so, marks no longer tell paths apart, and none is passed over: each is taken in its turn,
 * which takes one off all the same, so that they tell paths apart again some time.
 */
#include "multipath/turn.h"
#include "transport/multipath.h"
#include "transport/qp.h"

enum { MARK, LOSS, MOST, SATURATED };

struct bitmap {
	struct turn turn;
	uint32_t waiting; /* entropies that are to be passed over */
};

static void start(struct fabric *f, struct qp *q)
{
	struct bitmap *own = multipath_own(q);

	turn_start(f, q, &own->turn);
}

static uint32_t pick(struct fabric *f, struct qp *q)
{
	struct bitmap *own = multipath_own(q);
	uint8_t *skips = multipath_own_of_entropies(q);
	double most = multipath_param(q, SATURATED) * q->multipath->p.entropies;
	uint32_t entropy = turn_next(f, q, &own->turn);

	while (skips[entropy]) {
		bool saturated = own->waiting > most;

		own->waiting -= --skips[entropy] == 0;
		if (saturated)
			break;
		q->skipped++;
		entropy = turn_next(f, q, &own->turn);
	}
	return entropy;
}

static void skip(struct qp *q, uint32_t entropy, double times)
{
	struct bitmap *own = multipath_own(q);
	uint8_t *skips = (uint8_t *)multipath_own_of_entropies(q) + entropy;
	double most = multipath_param(q, MOST), all = *skips + times;

	bool waited = *skips;

	*skips = (uint8_t)(all < most ? all : most);
	own->waiting += !waited && *skips;
}

static void returned(struct fabric *f, struct qp *q, uint32_t entropy, bool marked)
{
	(void)f;
	if (marked)
		skip(q, entropy, multipath_param(q, MARK));
}

static void lost(struct fabric *f, struct qp *q, uint32_t entropy)
{
	(void)f;
	skip(q, entropy, multipath_param(q, LOSS));
}

static const char *wrong(const double *v)
{
	return v[MOST] <= UINT8_MAX ? NULL : "multipath: params: 255 at most";
}

static const struct multipath_policy bitmap = {
	.name = "bitmap",
	.params = {[MARK] = "mark", [LOSS] = "loss", [MOST] = "most", [SATURATED] = "saturated"},
	.state_bytes = sizeof(struct bitmap),
	.entropy_bytes = 1,
	.hears = true,
	.wrong = wrong,
	.start = start,
	.pick = pick,
	.returned = returned,
	.lost = lost,
	.trimmed = lost,
};
MULTIPATH_POLICY(bitmap);
