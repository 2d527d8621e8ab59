/* Sets of ports of which a switch takes one for each frame
 *
 * Theory of Operation
 *
 * Open vSwitch says which ports, by a copy of the frame for each, as often as it weighs.  A node has each set
 * once, whoever asks first: what is known of a set, such as whose turn it is, does not depend on the way by
 * which frames came to it.
 *
 * The ports of a set whose cables are up are a set, too, found again when a cable has changed.
 *
 * Where rules come and go there are ever more sets.  A node knows those of which a frame last took a port, WAYS_KNOWN of
 * them; of one that it took none of for longest it then knows nothing any more, as of one that is new.  So that follows
 * from the frames alone, and not from who asks, and when.  Such a set is freed when no flow and no frame names it.
 */
#include <stdlib.h>

#include "engine/fabric.h"
#include "link/port.h"
#include "link/ways.h"

static bool same(const struct ways *w, const struct ways *whole, const uint16_t *ports, uint16_t copies)
{
	uint16_t at = 0;

	if (w->copies != copies || (w->whole != w ? w->whole : NULL) != whole)
		return false;
	for (uint16_t i = 0; i < w->count; i++)
		for (uint16_t k = 0; k < w->way[i].weight; k++)
			if (ports[at++] != w->way[i].port)
				return false;
	return true;
}

/* The k-th of a way that weighs w has its place at (2 k + 1) / (2 w) of the round */
static void put_in_order(struct ways *w)
{
	uint16_t had[WAYS_MAX] = {0};

	for (uint16_t at = 0; at < w->copies; at++) {
		uint16_t first = 0;
		bool found = false;
		for (uint16_t i = 0; i < w->count; i++) {
			if (had[i] == w->way[i].weight)
				continue;
			if (!found || (2u * had[i] + 1) * w->way[first].weight < (2u * had[first] + 1) * w->way[i].weight)
				first = i;
			found = true;
		}
		had[first]++;
		w->order[at] = (uint8_t)first;
	}
}

static struct ways *intern(struct node *n, struct ways *whole, const uint16_t *ports, uint16_t copies)
{
	for (struct ways *w = n->ways; w; w = w->next)
		if (same(w, whole, ports, copies))
			return w;
	struct ways *w = calloc(1, sizeof *w + copies * sizeof *w->way);
	if (!w)
		abort();
	for (uint16_t i = 0; i < copies; i++) {
		if (!w->count || w->way[w->count - 1].port != ports[i])
			w->way[w->count++] = (struct way){.port = ports[i], .whole = w->count};
		w->way[w->count - 1].weight++;
	}
	for (uint16_t i = 1; i < w->count; i++)
		if (w->way[i].weight > w->way[w->heaviest].weight)
			w->heaviest = i;
	w->copies = copies;
	w->whole = whole ? whole : w;
	put_in_order(w);
	w->node = n;
	w->next = n->ways;
	return n->ways = w;
}

/* Those of its ports that were up */
static bool is_part(const struct ways *w, const struct ways *whole)
{
	return w->whole == whole && w != whole;
}

static void free_one(struct ways *w)
{
	free(w->memory.state);
	free(w);
}

/* Take off the list what is a part of a set, and it itself if nobody names it */
static void forget(struct ways *whole)
{
	for (struct ways **at = &whole->node->ways, *w; (w = *at);) {
		if (is_part(w, whole) || (w == whole && !whole->named)) {
			*at = w->next;
			if (w != whole)
				free_one(w);
		} else {
			at = &w->next;
		}
	}
	whole->alive = NULL;
	if (!whole->named) {
		free_one(whole);
		return;
	}
	ways_rest(whole);
	for (uint16_t i = 0; i < whole->count; i++)
		whole->way[i].picks = 0;
}

static void take_off(struct ways *w)
{
	struct node *n = w->node;

	*(w->newer ? &w->newer->older : &n->ways_newest) = w->older;
	*(w->older ? &w->older->newer : &n->ways_oldest) = w->newer;
	w->newer = w->older = NULL;
	w->known = false;
	n->ways_known--;
}

/* ways_taken() - A frame takes one of a set's ports */
void ways_taken(struct ways *w)
{
	struct node *n = w->node;

	if (n->ways_newest == w)
		return;
	if (w->known)
		take_off(w);
	w->older = n->ways_newest;
	*(w->older ? &w->older->newer : &n->ways_oldest) = w;
	n->ways_newest = w;
	w->known = true;
	if (++n->ways_known <= WAYS_KNOWN)
		return;
	struct ways *oldest = n->ways_oldest;
	take_off(oldest);
	forget(oldest);
}

/* ways_rest() - Nothing is known of a set: no frame has taken one of its ports */
void ways_rest(struct ways *w)
{
	w->turn = w->given = 0;
	free(w->memory.state);
	w->memory = (struct pick_memory){0};
	for (uint16_t i = 0; i < w->count; i++)
		w->way[i].busy_until = w->way[i].next = 0;
}

/* ways_name() - A flow or a frame names a set, until ways_drop() */
struct ways *ways_name(struct ways *w)
{
	if (w)
		w->named++;
	return w;
}

void ways_drop(struct ways *w)
{
	if (w && !--w->named && !w->known)
		forget(w);
}

/* ways_of() - The set of these ports
 * @ports:	Ascending, each as often as it weighs
 * @copies:	From 2 to WAYS_MAX
 */
struct ways *ways_of(struct node *n, const uint16_t *ports, uint16_t copies)
{
	return intern(n, NULL, ports, copies);
}

/* ways_find() - The way by this port, or NULL */
struct way *ways_find(struct ways *w, uint16_t port)
{
	for (uint16_t i = 0; i < w->count; i++)
		if (w->way[i].port == port)
			return &w->way[i];
	return NULL;
}

/* ways_alive() - What is left of a set without ports whose cables are down; all of it if none is up */
struct ways *ways_alive(struct fabric *f, struct node *n, struct ways *w)
{
	uint16_t up[WAYS_MAX], copies = 0;

	if (w->alive && w->wiring == f->wiring)
		return w->alive;
	for (uint16_t i = 0; i < w->count; i++) {
		const struct port *p = &n->ports[w->way[i].port - 1];
		for (uint16_t k = 0; p->cable && p->cable->p.up && k < w->way[i].weight; k++)
			up[copies++] = p->number;
	}
	w->wiring = f->wiring;
	w->alive = copies && copies < w->copies ? intern(n, w, up, copies) : w;
	for (uint16_t i = 0; w->alive != w && i < w->alive->count; i++)
		w->alive->way[i].whole = (uint16_t)(ways_find(w, w->alive->way[i].port) - w->way);
	return w->alive;
}

void ways_free(struct node *n)
{
	for (struct ways *w; (w = n->ways);) {
		n->ways = w->next;
		free_one(w);
	}
}
