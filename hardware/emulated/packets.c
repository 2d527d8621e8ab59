/* Packets of the management network: told, taken in, read and acknowledged
 *
 * Theory of Operation
 *
 * A packet lies in the kernel's buffer of its socket until the other end takes it in, whose room is not to be had for the
 * asking: a packet that does not fit would wait there, with the emulated time of all, or be lost.  So an end sends only
 * while what the peer has not read weighs less than WINDOW.  Reading is said by an acknowledgement, which arrives a
 * latency later, as TCP's does: so when a writer goes on does not depend on which process was faster.
 *
 * Acknowledgements come by the same socket as data that nobody has read.  So all that has come is taken in, and kept in
 * two lists.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "emulated.h"
#include "network.h"

#define WINDOW 160000 /* with a packet more, and their acknowledgements, below what the kernel has doubled */

/* What a packet takes of the kernel's buffer at most */
static size_t weight(size_t n)
{
	return 1024 + (n < 8192 ? 2 * n : n + 8192);
}

/* end_tell() - Send a packet, which arrives at that time (0: the network's latency later) */
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n, uint64_t arrives)
{
	struct packet h = {.arrives = arrives ? arrives : railbed_now(0) + LATENCY_PS, .kind = kind, .bytes = (uint32_t)n,
			   .rank = railbed_rank(), .port = e->port};
	struct iovec v[] = {{&h, sizeof h}, {(void *)(uintptr_t)data, n}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = data ? 2 : 1};

	if (kind == DATA) {
		lock_take(&network_lock);
		e->under_way += weight(n);
		lock_give(&network_lock);
	}
	(void)!KERNEL(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
}

/* The next packet, with its bytes if there is room for them; so many came, 0: none yet, below 0: none will */
static long receive(int fd, struct packet *h, uint8_t *bytes, int flags)
{
	struct iovec v[] = {{h, sizeof *h}, {bytes, MOST}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = bytes ? 2 : 1};
	long n;

	do /* that the peer has closed with something unread is said once, before what it has sent */
		n = KERNEL(SYS_recvmsg, fd, &m, MSG_DONTWAIT | flags);
	while (n < 0 && (errno == ECONNRESET || errno == EINTR));
	return n > 0 ? n : n < 0 && errno == EAGAIN ? 0 : -1;
}

/* pending_first() - The first packet of a socket that is none of ours yet: 1 if there is one, -1 if none will come */
int pending_first(int fd, struct packet *h)
{
	long n = receive(fd, h, NULL, MSG_PEEK);

	return n == sizeof *h ? 1 : n ? -1 : 0;
}

static void append(struct got **at, struct got *new)
{
	while (*at)
		at = &(*at)->next;
	*at = new;
}

/* All that has come is kept
 *
 * A packet is looked at and taken by one call: between two the peer may end, which the kernel says instead of what it is
 * asked for.
 */
static void take_in(int fd, struct end *e)
{
	static uint8_t bytes[MOST];
	struct packet h;
	long n;

	while (!e->gone && (n = receive(fd, &h, bytes, 0)) != 0) {
		size_t more = n > 0 && h.kind == DATA ? (size_t)n - sizeof h : 0;
		e->gone = n < (long)sizeof h || (h.kind == DATA && more != h.bytes);
		struct got *new = e->gone ? NULL : malloc(sizeof *new + more);
		if (!new)
			return;
		*new = (struct got){.head = h};
		memcpy(new + 1, bytes, more);
		append(h.kind == ACK ? &e->acks : &e->unread, new);
	}
}

/* end_first() - The first packet that is not read: 1 if there is one, -1 if none will come */
int end_first(int fd, struct end *e, struct packet *h)
{
	lock_take(&network_lock);
	take_in(fd, e);
	if (e->unread)
		*h = e->unread->head;
	int there = e->unread ? 1 : e->gone ? -1 : 0;
	lock_give(&network_lock);
	return there;
}

/* end_take() - The next packet, which is there, is read.  False: the end */
bool end_take(int fd, struct end *e)
{
	struct packet h;

	if (e->eof || end_first(fd, e, &h) <= 0) {
		e->eof = true;
		return false;
	}
	lock_take(&network_lock);
	free(e->reading);
	e->reading = e->unread;
	e->unread = e->unread->next;
	lock_give(&network_lock);
	e->at = 0;
	e->peer = h.rank;
	e->peer_port = h.port;
	e->eof = h.kind == END;
	if (h.kind == DATA)
		end_tell(fd, e, ACK, NULL, weight(h.bytes), 0);
	return !e->eof;
}

/* end_left() - How much of the packet that is read is left */
size_t end_left(const struct end *e)
{
	lock_take(&network_lock);
	size_t left = e->reading && e->reading->head.kind == DATA ? e->reading->head.bytes - e->at : 0;
	lock_give(&network_lock);
	return left;
}

/* end_bytes() - Where that is */
const uint8_t *end_bytes(const struct end *e)
{
	return (const uint8_t *)(e->reading + 1) + e->at;
}

/* end_has_room() - May a packet be sent by now?  Else when to look again */
bool end_has_room(int fd, struct end *e, uint64_t now, uint64_t *next)
{
	lock_take(&network_lock);
	if (e->under_way >= WINDOW)
		take_in(fd, e);
	while (e->acks && e->acks->head.arrives <= now) {
		struct got *first = e->acks;
		e->under_way -= first->head.bytes < e->under_way ? first->head.bytes : e->under_way;
		e->acks = first->next;
		free(first);
	}
	if (e->acks && e->under_way >= WINDOW && e->acks->head.arrives < *next)
		*next = e->acks->head.arrives;
	bool room = e->under_way < WINDOW;
	lock_give(&network_lock);
	return room;
}

/* end_is_broken() - Nobody will read any more: the peer has closed its end, and that has been heard of by now */
bool end_is_broken(struct end *e, uint64_t now)
{
	bool broken;

	lock_take(&network_lock);
	broken = e->gone && !e->acks;
	for (const struct got *g = e->unread; g; g = g->next)
		broken = broken && (g->head.kind != END || g->head.arrives <= now);
	lock_give(&network_lock);
	return broken;
}

static void free_all(struct got *g)
{
	while (g) {
		struct got *next = g->next;
		free(g);
		g = next;
	}
}

void end_free(struct end *e)
{
	free_all(e->unread);
	free_all(e->acks);
	free(e->reading);
}
