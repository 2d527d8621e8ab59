/* The management network: a program's TCP sockets, between ranks whose hosts have no interfaces
 *
 * A socket is a unix socket in a folder that all containers share, and each write a packet that says when it arrives:
 * LATENCY_PS after it was written.  Who waits for one steps on by a little less than that.  So what may have been
 * written by then is there, and when a reader goes on does not depend on which process was faster.
 */
#include "emulated.h"
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct end ends[4096];

/* end_of() - A socket of ours, or NULL */
struct end *end_of(int fd)
{
	return fd >= 0 && fd < (int)(sizeof ends / sizeof *ends) && ends[fd].used ? &ends[fd] : NULL;
}

/* end_new() - A descriptor becomes one of ours; NULL, with errno, if it cannot, and it is closed */
struct end *end_new(int fd)
{
	if (fd >= (int)(sizeof ends / sizeof *ends)) {
		syscall(SYS_close, fd);
		errno = EMFILE;
	}
	if (fd < 0 || fd >= (int)(sizeof ends / sizeof *ends))
		return NULL;
	ends[fd] = (struct end){.used = true};
	return &ends[fd];
}

bool network_ours(int fd)
{
	return end_of(fd);
}

int socket(int domain, int type, int protocol)
{
	bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & 15) == SOCK_STREAM;

	if (!tcp || !railbed_emulated())
		return (int)syscall(SYS_socket, domain, type, protocol);
	if (domain == AF_INET6) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
	return end_new(fd) ? fd : -1;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	return end_of(fd) ? 0 : (int)syscall(SYS_setsockopt, fd, level, name, value, n);
}

/* end_tell() - Send a packet, which arrives at that time (0: the network's latency later) */
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n, uint64_t arrives)
{
	struct packet h = {.arrives = arrives ? arrives : railbed_now(0) + LATENCY_PS, .kind = kind, .bytes = (uint32_t)n,
			   .rank = railbed_rank(), .port = e->port};
	struct iovec v[] = {{&h, sizeof h}, {(void *)(uintptr_t)data, n}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = n ? 2 : 1};

	(void)!syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
}

/* end_first() - The first packet of a socket: 1 if there is one, -1 if none will come */
int end_first(int fd, struct packet *h)
{
	long n = syscall(SYS_recvfrom, fd, h, sizeof *h, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);

	return n == sizeof *h ? 1 : n == 0 || (n < 0 && errno != EAGAIN) ? -1 : 0;
}

/* network_ready() - Is there something to read, or an end, at that time?  Else when to look again at the latest */
int network_ready(int fd, uint64_t now, uint64_t *next)
{
	struct end *e = end_of(fd);
	struct packet h;

	*next = now + STEP_PS;
	if (e->listening)
		return connection_next(fd, e, now, next) >= 0 || railbed_lost();
	if (e->connecting && !connection_advance(fd, e, now, next))
		return 0;
	if (!e->connected)
		return 0;
	e->eof = e->eof || railbed_lost(); /* nobody can tell any more when something would come */
	if (e->at < e->len || e->eof)
		return 1;
	int there = end_first(fd, &h);
	if (there > 0 && h.arrives > now) {
		*next = h.arrives < *next ? h.arrives : *next;
		return 0;
	}
	return there != 0;
}

/* network_events() - As poll has them; what is connected can always be written to */
short network_events(int fd, uint64_t now, uint64_t *next)
{
	short in = network_ready(fd, now, next) ? POLLIN : 0;
	const struct end *e = end_of(fd);

	if (e->error)
		return POLLIN | POLLOUT | POLLERR | POLLHUP;
	return in | (e->connected ? POLLOUT : 0);
}

/* end_wait() - Until there is something to read */
void end_wait(int fd)
{
	uint64_t next;

	while (!network_ready(fd, railbed_now(0), &next))
		railbed_wait(next);
}

bool end_blocks(int fd)
{
	return !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* end_take() - Take in the next packet, which is there.  False: the end */
bool end_take(int fd, struct end *e)
{
	struct packet h;

	if (e->eof || end_first(fd, &h) < 0 || h.bytes > MOST) {
		e->eof = true;
		return false;
	}
	uint8_t *more = realloc(e->buffer, sizeof h + h.bytes);
	if (!more)
		return false;
	e->buffer = more;
	(void)!syscall(SYS_recvfrom, fd, e->buffer, sizeof h + h.bytes, 0, NULL, NULL);
	e->at = sizeof h;
	e->len = sizeof h + h.bytes;
	e->peer = h.rank;
	e->peer_port = h.port;
	e->eof = h.kind == END;
	return !e->eof;
}

static void address_of(uint32_t rank, uint16_t port, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = railbed_address(rank)};

	if (!a || !n)
		return;
	memcpy(a, &in, *n < sizeof in ? *n : sizeof in);
	*n = sizeof in;
}

int getpeername(int fd, struct sockaddr *restrict a, socklen_t *restrict n)
{
	struct end *e = end_of(fd);

	if (!e)
		return (int)syscall(SYS_getpeername, fd, a, n);
	address_of(e->peer, e->peer_port, a, n);
	return 0;
}

int getsockname(int fd, struct sockaddr *restrict a, socklen_t *restrict n)
{
	struct end *e = end_of(fd);

	if (!e)
		return (int)syscall(SYS_getsockname, fd, a, n);
	address_of(railbed_rank(), e->port, a, n);
	return 0;
}

int shutdown(int fd, int how)
{
	struct end *e = end_of(fd);

	if (!e)
		return (int)syscall(SYS_shutdown, fd, how);
	if (how != SHUT_RD)
		end_tell(fd, e, END, NULL, 0, 0);
	return 0;
}

int close(int fd)
{
	struct end *e = end_of(fd);

	if (e && e->connected)
		end_tell(fd, e, END, NULL, 0, 0);
	if (e) {
		for (int i = 0; i < e->pendings; i++)
			syscall(SYS_close, e->pending[i]);
		free(e->pending);
		free(e->buffer);
		*e = (struct end){0};
	}
	waiting_forget(fd);
	return (int)syscall(SYS_close, fd);
}
