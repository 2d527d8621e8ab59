/* Frames: buffers of one size, from slabs that grow and are never given back
 * while the fabric lives, so that nothing is allocated per packet.
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include "bytes.h"
#include "fabric.h"
#include "roce.h"

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
		fr->next = f->frame_free;
		f->frame_free = fr;
	}
}

/* frame_new() - An empty frame with frame_room bytes */
struct frame *frame_new(struct fabric *f)
{
	if (!f->frame_free)
		slab_add(f);
	struct frame *fr = f->frame_free;
	f->frame_free = fr->next;
	*fr = (struct frame){0};
	return fr;
}

/* frame_free() - One user of a frame is done with it */
void frame_free(struct fabric *f, struct frame *fr)
{
	if (fr->users && --fr->users)
		return;
	passage_leave(f, fr);
	fr->next = f->frame_free;
	f->frame_free = fr;
}

/* passage_new() - A frame is on its way to a switch's port; the frame itself is its first user */
struct passage *passage_new(struct fabric *f, struct port *in, ps_t t_in, uint32_t bytes)
{
	if (!f->passage_free) {
		struct passage *slab = malloc(sizeof *slab * SLAB_FRAMES);
		struct passage **slabs = realloc(f->passage_slabs, (f->passage_slab_count + 1) * sizeof(struct passage *));
		if (!slab || !slabs)
			abort();
		f->passage_slabs = slabs;
		slabs[f->passage_slab_count++] = slab;
		for (size_t i = 0; i < SLAB_FRAMES; i++) {
			slab[i].next = f->passage_free;
			f->passage_free = &slab[i];
		}
	}
	struct passage *way = f->passage_free;
	f->passage_free = way->next;
	*way = (struct passage){.in = in, .t_in = t_in, .bytes = bytes, .users = 1};
	return way;
}

/* passage_join() - A copy shares the way */
struct passage *passage_join(struct passage *way)
{
	way->users++;
	return way;
}

/* passage_leave() - A frame is out of the switch; with the last one, its place in the buffer is free */
void passage_leave(struct fabric *f, struct frame *fr)
{
	struct passage *way = fr->way;

	fr->way = NULL;
	if (!way || --way->users)
		return;
	if (way->admitted)
		buffer_release(f, (struct sw *)way->in->node, way);
	way->next = f->passage_free;
	f->passage_free = way;
}

void frames_close(struct fabric *f)
{
	while (f->passage_slab_count)
		free(f->passage_slabs[--f->passage_slab_count]);
	free(f->passage_slabs);
	f->passage_slabs = NULL;
	f->passage_free = NULL;
	while (f->frame_slab_count)
		free(f->frame_slabs[--f->frame_slab_count]);
	free(f->frame_slabs);
	f->frame_slabs = NULL;
	f->frame_free = NULL;
}

/* frame_describe() - A frame's headers in words, for drop reports
 * @data:	Its first bytes
 * @have:	How many of them there are
 * @len:	Length of the whole frame
 */
void frame_describe(const uint8_t *data, size_t have, size_t len, char *text, size_t room)
{
	struct view v = view_of(data, have < len ? have : len);
	const uint8_t *mac = view_take(&v, 12);
	uint16_t type = get_be16(&v);
	char from[INET_ADDRSTRLEN], to[INET_ADDRSTRLEN];

	if (v.bad) {
		snprintf(text, room, "%zu bytes, no Ethernet header", len);
		return;
	}
	const uint8_t *ip = type == 0x0800 ? view_take(&v, IPV4_BYTES) : NULL;
	if (!ip) {
		snprintf(text, room,
			 "%02x:%02x:%02x:%02x:%02x:%02x > %02x:%02x:%02x:%02x:%02x:%02x ethertype 0x%04x, %zu bytes",
			 mac[6], mac[7], mac[8], mac[9], mac[10], mac[11], mac[0], mac[1], mac[2], mac[3], mac[4],
			 mac[5], type, len);
		return;
	}
	inet_ntop(AF_INET, ip + 12, from, sizeof from);
	inet_ntop(AF_INET, ip + 16, to, sizeof to);
	uint16_t src_port = get_be16(&v), dst_port = get_be16(&v);
	view_take(&v, 4);
	uint8_t opcode = get_u8(&v);
	view_take(&v, 4);
	uint32_t qp = get_be24(&v), psn = get_be32(&v) & PSN_MASK;
	if (ip[9] == 17 && dst_port == ROCE_UDP_PORT && !v.bad)
		snprintf(text, room, "%s > %s UDP %u > %u dscp %u RoCE RC %s qp %u psn %u, %zu bytes", from, to, src_port,
			 dst_port, ip[1] >> 2, roce_opcode_name(opcode), qp, psn, len);
	else
		snprintf(text, room, "%s > %s IP protocol %u, %zu bytes", from, to, ip[9], len);
}
