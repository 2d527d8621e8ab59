/* Frames: from slabs that grow and are never given back while the fabric lives, so that
 * nothing is allocated per packet.  Buffers of full frames have slabs of their own.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/poison.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/credits.h"
#include "link/frame.h"
#include "link/port.h"

#define SLAB_FRAMES 256
#define FREE_FRAME_LINES 4 /* of the next one: up to its headers */

/* The buffer of a full frame, while nobody uses it */
struct room {
	struct room *next;
};

static void frame_free(struct fabric *f, struct frame *fr)
{
	fr->next = f->free_frames;
	f->free_frames = fr;
	poison(&fr->next + 1, sizeof *fr - sizeof fr->next);
}

static void room_free(struct fabric *f, struct room *room)
{
	room->next = f->free_rooms;
	f->free_rooms = room;
	poison(room + 1, f->frame_room - sizeof *room);
}

/* SLAB_FRAMES pieces of memory, which frames_close() frees */
static uint8_t *slab_new(struct fabric *f, size_t each)
{
	uint8_t *slab = aligned_alloc(64, each * SLAB_FRAMES);
	void **slabs = realloc(f->frame_slabs, (f->frame_slab_count + 1) * sizeof *slabs);

	if (!slab || !slabs)
		abort();
	f->frame_slabs = slabs;
	slabs[f->frame_slab_count++] = slab;
	return slab;
}

static size_t lines(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

static void more_frames(struct fabric *f)
{
	uint8_t *slab = slab_new(f, sizeof(struct frame));

	for (size_t i = SLAB_FRAMES; i-- > 0;)
		frame_free(f, (struct frame *)slab + i);
}

static void more_rooms(struct fabric *f)
{
	size_t each = lines(f->frame_room);
	uint8_t *slab = slab_new(f, each);

	for (size_t i = SLAB_FRAMES; i-- > 0;)
		room_free(f, (struct room *)(slab + i * each));
}

/* frame_small() - An empty frame with FRAME_HEAD_BYTES bytes */
struct frame *frame_small(struct fabric *f)
{
	if (!f->free_frames)
		more_frames(f);
	struct frame *fr = f->free_frames;
	f->free_frames = fr->next;
	lines_near(f->free_frames, FREE_FRAME_LINES);
	unpoison(fr, sizeof *fr);
	memset(fr, 0, offsetof(struct frame, head));
	fr->data = fr->head;
	return fr;
}

/* frame_grow() - Give a frame a buffer of frame_room bytes, unless it has one; what it holds it keeps */
void frame_grow(struct fabric *f, struct frame *fr)
{
	if (fr->data != fr->head)
		return;
	if (!f->free_rooms)
		more_rooms(f);
	struct room *room = f->free_rooms;
	f->free_rooms = room->next;
	unpoison(room, f->frame_room);
	fr->data = (uint8_t *)room;
	memcpy(fr->data, fr->head, frame_near(fr) < FRAME_HEAD_BYTES ? frame_near(fr) : FRAME_HEAD_BYTES);
}

/* frame_new() - An empty frame with frame_room bytes */
struct frame *frame_new(struct fabric *f)
{
	struct frame *fr = frame_small(f);

	frame_grow(f, fr);
	return fr;
}

/* frame_twin() - Another frame with the same bytes, and nothing else */
struct frame *frame_twin(struct fabric *f, struct frame *fr)
{
	struct frame *twin = fr->data == fr->head ? frame_small(f) : frame_new(f);

	memcpy(twin->data, fr->data, frame_near(fr));
	twin->len = fr->len;
	twin->unsealed = fr->unsealed;
	if (fr->lent)
		lent_follow(fr, twin);
	return twin;
}

/* frame_release() - One user of a frame is done with it */
void frame_release(struct fabric *f, struct frame *fr)
{
	if (fr->refs && --fr->refs)
		return;
	passage_leave(f, fr);
	passage_ends(f, fr);
	if (fr->lender)
		lent_end(fr);
	if (fr->data != fr->head)
		room_free(f, (struct room *)fr->data);
	frame_free(f, fr);
}

/* passage_new() - A frame is on its way to a switch's port; the frame itself is its first user */
struct passage *passage_new(struct fabric *f, struct port *in, ps_t t_in, uint32_t bytes)
{
	if (!f->free_passages) {
		struct passage *slab = aligned_alloc(LINE_BYTES, sizeof *slab * SLAB_FRAMES);
		struct passage **slabs = realloc(f->passage_slabs, (f->passage_slab_count + 1) * sizeof(struct passage *));
		if (!slab || !slabs)
			abort();
		f->passage_slabs = slabs;
		slabs[f->passage_slab_count++] = slab;
		for (size_t i = 0; i < SLAB_FRAMES; i++) {
			slab[i].next = f->free_passages;
			f->free_passages = &slab[i];
		}
	}
	struct passage *passage = f->free_passages;
	f->free_passages = passage->next;
	line_near(f->free_passages);
	*passage = (struct passage){.in = in, .t_in = t_in, .bytes = bytes, .refs = 1};
	return passage;
}

/* passage_join() - A copy shares the way */
struct passage *passage_join(struct passage *passage)
{
	passage->refs++;
	return passage;
}

static void passage_free(struct fabric *f, struct passage *passage)
{
	if (passage->refs || passage->ahead)
		return;
	passage->next = f->free_passages;
	f->free_passages = passage;
}

/* passage_leave() - A frame is out of the switch; with the last one, its place in the buffer is free */
void passage_leave(struct fabric *f, struct frame *fr)
{
	struct passage *passage = fr->passage;

	fr->passage = NULL;
	if (!passage || --passage->refs)
		return;
	if (passage->admitted)
		passage->in->node->ops->passed(f, passage);
	if (passage->blocks)
		credits_free(f, passage->in, passage->class, passage->blocks);
	passage_free(f, passage);
}

/* passage_cut() - A frame starts on a cable.  If it has not come in as a whole it may turn out to be bad */
void passage_cut(struct fabric *f, struct frame *fr)
{
	if (!fr->passage || fr->passage->t_in <= f->clock.now)
		return;
	fr->cut = fr->passage;
	fr->cut->ahead++;
}

/* passage_ends() - A frame is at the far end of its cable: whether it is bad is known now */
void passage_ends(struct fabric *f, struct frame *fr)
{
	struct passage *passage = fr->cut;

	fr->cut = NULL;
	if (!passage)
		return;
	fr->bad = fr->bad || passage->bad;
	passage->ahead--;
	passage_free(f, passage);
}

void frames_close(struct fabric *f)
{
	while (f->passage_slab_count)
		free(f->passage_slabs[--f->passage_slab_count]);
	free(f->passage_slabs);
	f->passage_slabs = NULL;
	f->free_passages = NULL;
	while (f->frame_slab_count)
		free(f->frame_slabs[--f->frame_slab_count]);
	free(f->frame_slabs);
	f->frame_slabs = NULL;
	f->free_frames = NULL;
	f->free_rooms = NULL;
}
