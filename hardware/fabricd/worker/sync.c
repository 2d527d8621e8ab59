/* SYNC: ranks that wait for each other
 *
 * Theory of Operation
 *
 * Ranks that name the same tag and number of participants meet.  The last one to
 * come lets all of them go on, at the latest of their times.  Any worker may have
 * SYNCS_MAX open with tags of its own choice; so they are found by a hash, and a bit
 * for each rank says who has come.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "records/records.h"
#include "worker/worker.h"

/* syncs_new() - Nobody waits yet */
struct sync **syncs_new(void)
{
	struct sync **syncs = calloc(1 << SYNC_BITS, sizeof(struct sync *));

	if (!syncs)
		abort();
	return syncs;
}

static struct sync **bucket(struct fabric *f, uint32_t tag, uint32_t participants)
{
	return &f->syncs[((tag ^ participants << 16) * 2654435769u) >> (32 - SYNC_BITS)];
}

static struct sync *sync_new(const struct fabric *f, uint32_t tag, uint32_t participants)
{
	struct sync *s = calloc(1, sizeof *s);
	uint32_t *ranks = calloc(participants, sizeof *ranks);
	uint8_t *come = calloc((f->nic_count + 7) / 8, 1);

	if (!s || !ranks || !come)
		abort();
	*s = (struct sync){.tag = tag, .participants = participants, .ranks = ranks, .come = come};
	return s;
}

static void sync_free(struct sync *s)
{
	free(s->ranks);
	free(s->come);
	free(s);
}

/* worker_sync() - A rank has come to a SYNC; the last one lets all of them go on
 *
 * Ranks that name different numbers of participants do not meet.
 */
void worker_sync(struct fabric *f, struct worker *w, uint32_t tag, uint32_t participants)
{
	struct sync **at = bucket(f, tag, participants), *s;

	if (w->syncing == SYNCS_MAX) {
		worker_end(f, w, WORKER_LOST, "SYNC: more than 256 not yet answered");
		return;
	}
	while (*at && ((*at)->tag != tag || (*at)->participants != participants))
		at = &(*at)->next;
	if (!*at)
		*at = sync_new(f, tag, participants);
	s = *at;
	uint8_t bit = (uint8_t)(1u << (w->rank & 7));
	if (s->come[w->rank / 8] & bit) {
		worker_end(f, w, WORKER_LOST, "SYNC: twice with one tag before the others came");
		return;
	}
	s->come[w->rank / 8] |= bit;
	s->ranks[s->count++] = w->rank;
	w->syncing++;
	if (w->now > s->t)
		s->t = w->now;
	if (s->count < participants)
		return;
	*at = s->next;
	for (uint32_t i = 0; i < s->count; i++) {
		struct worker *one = &f->workers[s->ranks[i]];
		one->syncing--;
		worker_record(f, one, &(struct record){.kind = REC_SYNCED, .wr_id = tag, .t = s->t});
	}
	sync_free(s);
}

/* syncs_forget() - Nobody waits any more */
void syncs_forget(struct fabric *f)
{
	for (uint32_t i = 0; f->syncs && i < 1u << SYNC_BITS; i++)
		while (f->syncs[i]) {
			struct sync *s = f->syncs[i];
			f->syncs[i] = s->next;
			sync_free(s);
		}
}
