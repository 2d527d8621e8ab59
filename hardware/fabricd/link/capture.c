/* Captures: pcapng files with emulated time stamps, one interface per port. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "link/capture.h"
#include "link/port.h"

#define SECTION 0x0a0d0d0au
#define INTERFACE 1u
#define PACKET 6u
#define OPTION_END 0
#define IF_NAME 2
#define IF_TSRESOL 9
#define PACKET_FLAGS 2

struct capture {
	struct capture *next;
	char *path;
	FILE *file;
	int error; /* errno of the first write that failed */
	int interfaces;
};

static void put(struct capture *c, const void *data, size_t len)
{
	if (len && fwrite(data, len, 1, c->file) != 1 && !c->error)
		c->error = errno;
}

static void write_block(struct capture *c, uint32_t type, const uint8_t *body, uint32_t len)
{
	uint8_t head[8], tail[4];
	uint32_t total = len + 12;

	put_le32(put_le32(head, type), total);
	put_le32(tail, total);
	put(c, head, sizeof head);
	put(c, body, len);
	put(c, tail, sizeof tail);
}

static void write_interface(struct capture *c, const struct port *p)
{
	uint8_t body[8 + 4 + 2 * NAME_BYTES + 8 + 4] = {0};
	uint16_t len = 0;
	char name[2 * NAME_BYTES];

	len = (uint16_t)snprintf(name, sizeof name, "%s:%u", p->node->name, p->number);
	uint8_t *b = put_le32(put_le16(put_le16(body, 1), 0), 0); /* Ethernet, no limit */
	b = put_le16(put_le16(b, IF_NAME), len);
	memcpy(b, name, len);
	b += (len + 3) & ~3;
	b = put_le16(put_le16(b, IF_TSRESOL), 1);
	b = put_u8(b, 9); /* nanoseconds */
	b += 3;
	b = put_le16(put_le16(b, OPTION_END), 0);
	write_block(c, INTERFACE, body, (uint32_t)(b - body));
}

/* capture_start() - Write a port's frames, both directions, to a file
 * @path:	Its name; several ports may share a file
 * @file:	It, open; ours to close from now on
 *
 * Return: NULL, or what is wrong
 */
const char *capture_start(struct fabric *f, struct port *p, const char *path, FILE *file)
{
	struct capture *c = f->captures;

	if (p->capture) {
		fclose(file);
		return "this port is being captured already";
	}
	while (c && strcmp(c->path, path))
		c = c->next;
	if (c) {
		fclose(file);
	} else {
		c = calloc(1, sizeof *c);
		if (!c || !(c->path = strdup(path)))
			abort();
		c->file = file;
		c->error = ftruncate(fileno(file), 0) ? errno : 0;
		c->next = f->captures;
		f->captures = c;
		uint8_t body[16];
		uint8_t *b = put_le16(put_le16(put_le32(body, 0x1a2b3c4d), 1), 0);
		put_le64(b, UINT64_MAX); /* section length not stated */
		write_block(c, SECTION, body, sizeof body);
	}
	write_interface(c, p);
	p->capture = c;
	p->capture_if = c->interfaces++;
	return NULL;
}

static void forget(struct port *p, const struct capture *c)
{
	if (p->capture == c)
		p->capture = NULL;
}

/* Return: whether all of it is in the file; if not, f->error says why */
static bool capture_close(struct fabric *f, struct capture **at)
{
	struct capture *c = *at;

	for (uint32_t i = 0; i < f->node_count; i++)
		for (uint16_t k = 0; k < f->nodes[i]->port_count; k++)
			forget(&f->nodes[i]->ports[k], c);
	*at = c->next;
	if (fclose(c->file) && !c->error) /* what was still buffered */
		c->error = errno;
	bool whole = !c->error;
	if (!whole)
		snprintf(f->error, sizeof f->error, "the capture %.300s is not whole: %s", c->path, strerror(c->error));
	free(c->path);
	free(c);
	return whole;
}

const char *capture_stop(struct fabric *f, const char *path)
{
	for (struct capture **at = &f->captures; *at; at = &(*at)->next)
		if (!strcmp((*at)->path, path))
			return capture_close(f, at) ? NULL : f->error;
	return "no capture goes to this path";
}

void captures_close(struct fabric *f)
{
	while (f->captures)
		if (!capture_close(f, &f->captures))
			fprintf(stderr, "fabricd: %s\n", f->error);
}

/* capture_frame() - Keep one frame, at the current emulated time */
void capture_frame(struct fabric *f, struct port *p, const uint8_t *data, uint32_t len, bool outgoing)
{
	uint64_t ns = (uint64_t)((f->clock.now + PS_PER_NS / 2) / PS_PER_NS);
	uint32_t padded = (len + 3) & ~3u;
	uint8_t head[8 + 20], tail[3 + 12 + 4] = {0};
	struct capture *c = p->capture;

	uint32_t total = 12 + 20 + padded + 12;
	uint8_t *b = put_le32(put_le32(head, PACKET), total);
	b = put_le32(b, (uint32_t)p->capture_if);
	b = put_le32(put_le32(b, (uint32_t)(ns >> 32)), (uint32_t)ns);
	put_le32(put_le32(b, len), len);
	b = tail + (padded - len);
	b = put_le32(put_le16(put_le16(b, PACKET_FLAGS), 4), outgoing ? 2 : 1);
	b = put_le16(put_le16(b, OPTION_END), 0);
	b = put_le32(b, total);
	put(c, head, sizeof head);
	put(c, data, len);
	put(c, tail, (size_t)(b - tail));
}
