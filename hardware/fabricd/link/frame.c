/* Frames: buffers of one size, from slabs that grow and are never given back
 * while the fabric lives, so that nothing is allocated per packet.
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "link/frame.h"
#include "link/port.h"

#define SLAB_FRAMES 256

static void slab_add(struct fabric *f)
{
	size_t each = (sizeof(struct frame) + f->frame_room + 63) & ~(size_t)63;
	uint8_t *slab = malloc(each * SLAB_FRAMES);
	void **slabs = realloc(f->frame_slabs, (f->frame_slab_count + 1) * sizeof *slabs);

	if (!slab || !slabs)
		abort();
	f->frame_slabs = slabs;
	slabs[f->frame_slab_count++] = slab;
	for (size_t i = SLAB_FRAMES; i-- > 0;) {
		struct frame *fr = (struct frame *)(slab + i * each);
		fr->next = f->free_frames;
		f->free_frames = fr;
	}
}

/* frame_new() - An empty frame with frame_room bytes */
struct frame *frame_new(struct fabric *f)
{
	if (!f->free_frames)
		slab_add(f);
	struct frame *fr = f->free_frames;
	f->free_frames = fr->next;
	*fr = (struct frame){0};
	return fr;
}

/* frame_release() - One user of a frame is done with it */
void frame_release(struct fabric *f, struct frame *fr)
{
	if (fr->refs && --fr->refs)
		return;
	passage_leave(f, fr);
	fr->next = f->free_frames;
	f->free_frames = fr;
}

/* passage_new() - A frame is on its way to a switch's port; the frame itself is its first user */
struct passage *passage_new(struct fabric *f, struct port *in, ps_t t_in, uint32_t bytes)
{
	if (!f->free_passages) {
		struct passage *slab = malloc(sizeof *slab * SLAB_FRAMES);
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
	*passage = (struct passage){.in = in, .t_in = t_in, .bytes = bytes, .refs = 1};
	return passage;
}

/* passage_join() - A copy shares the way */
struct passage *passage_join(struct passage *passage)
{
	passage->refs++;
	return passage;
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
	passage->next = f->free_passages;
	f->free_passages = passage;
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
}

