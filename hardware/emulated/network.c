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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define FOLDER "/run/railbed/network" /* if RAILBED_NETWORK does not name another */
static struct end ends[4096];
static uint16_t ephemeral = 32768;

/* end_of() - A socket of ours, or NULL */
struct end *end_of(int fd)
{
	return fd >= 0 && fd < (int)(sizeof ends / sizeof *ends) && ends[fd].used ? &ends[fd] : NULL;
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
	if (fd >= (int)(sizeof ends / sizeof *ends)) {
		syscall(SYS_close, fd);
		errno = EMFILE;
		return -1;
	}
	if (fd >= 0)
		ends[fd] = (struct end){.used = true};
	return fd;
}

static struct sockaddr_un path_of(uint32_t rank, uint16_t port)
{
	struct sockaddr_un u = {.sun_family = AF_UNIX};
	const char *folder = getenv("RAILBED_NETWORK");

	snprintf(u.sun_path, sizeof u.sun_path, "%s/%u-%u", folder ? folder : FOLDER, rank, port);
	return u;
}

int bind(int fd, const struct sockaddr *a, socklen_t n)
{
	struct end *e = end_of(fd);

	if (!e)
		return (int)syscall(SYS_bind, fd, a, n);
	if (n < sizeof(struct sockaddr_in) || a->sa_family != AF_INET) {
		errno = EINVAL;
		return -1;
	}
	e->port = ntohs(((const struct sockaddr_in *)a)->sin_port);
	if (!e->port)
		e->port = ephemeral++;
	struct sockaddr_un u = path_of(railbed_rank(), e->port);
	unlink(u.sun_path);
	return (int)syscall(SYS_bind, fd, &u, sizeof u);
}

int listen(int fd, int n)
{
	struct end *e = end_of(fd);

	if (e)
		e->listening = true;
	return (int)syscall(SYS_listen, fd, n);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	return end_of(fd) ? 0 : (int)syscall(SYS_setsockopt, fd, level, name, value, n);
}

/* end_tell() - Send a packet, which arrives the network's latency later */
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n)
{
	struct packet h = {.arrives = railbed_now(0) + LATENCY_PS, .kind = kind, .bytes = (uint32_t)n, .rank = railbed_rank(), .port = e->port};
	struct iovec v[] = {{&h, sizeof h}, {(void *)(uintptr_t)data, n}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = n ? 2 : 1};

	(void)!syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);
}

/* The first packet of a socket: 1 if there is one, -1 if none will come */
static int first(int fd, struct packet *h)
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
	if (e->listening) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		return syscall(SYS_poll, &p, 1, 0) == 1 || railbed_lost();
	}
	if (!e->connected)
		return 0;
	e->eof = e->eof || railbed_lost(); /* nobody can tell any more when something would come */
	if (e->at < e->len || e->eof)
		return 1;
	int there = first(fd, &h);
	if (there > 0 && h.arrives > now) {
		*next = h.arrives < *next ? h.arrives : *next;
		return 0;
	}
	return there != 0;
}

/* network_writable() - Can something be written?  Always, once it is connected */
bool network_writable(int fd)
{
	return end_of(fd)->connected;
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

	if (e->eof || first(fd, &h) < 0 || h.bytes > MOST) {
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

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
	struct end *e = end_of(fd);
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	uint32_t rank = railbed_rank();

	if (!e)
		return (int)syscall(SYS_connect, fd, a, n);
	if (n < sizeof *in || in->sin_family != AF_INET) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	if (ntohl(in->sin_addr.s_addr) >> 24 != 127 && !railbed_rank_of(in->sin_addr.s_addr, &rank)) {
		errno = EHOSTUNREACH;
		return -1;
	}
	struct sockaddr_un u = path_of(rank, ntohs(in->sin_port));
	railbed_wait(railbed_now(0) + LATENCY_PS); /* whoever listens by now is there then */
	if (syscall(SYS_connect, fd, &u, sizeof u)) {
		railbed_wait(railbed_now(0) + LATENCY_PS);
		errno = ECONNREFUSED;
		return -1;
	}
	e->connected = true;
	e->port = e->port ? e->port : ephemeral++;
	e->peer = rank;
	e->peer_port = ntohs(in->sin_port);
	end_tell(fd, e, HELLO, NULL, 0);
	end_wait(fd);
	if (!end_take(fd, e)) {
		errno = ECONNRESET;
		return -1;
	}
	return 0;
}

static void address_of(uint32_t rank, uint16_t port, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = railbed_address(rank)};

	if (!a || !n)
		return;
	memcpy(a, &in, *n < sizeof in ? *n : sizeof in);
	*n = sizeof in;
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	struct end *e = end_of(fd);
	uint64_t next;

	if (!e)
		return (int)syscall(SYS_accept4, fd, a, n, flags);
	if (end_blocks(fd))
		end_wait(fd);
	else if (!network_ready(fd, railbed_now(0), &next)) {
		errno = EAGAIN;
		return -1;
	}
	if (railbed_lost()) {
		errno = ENETDOWN;
		return -1;
	}
	int c = (int)syscall(SYS_accept4, fd, NULL, NULL, flags & ~SOCK_NONBLOCK);
	if (c < 0)
		return c;
	if (c >= (int)(sizeof ends / sizeof *ends)) {
		syscall(SYS_close, c);
		errno = EMFILE;
		return -1;
	}
	ends[c] = (struct end){.used = true, .connected = true, .port = e->port};
	end_wait(c);
	end_take(c, &ends[c]); /* whose it is */
	end_tell(c, &ends[c], HELLO, NULL, 0);
	if (flags & SOCK_NONBLOCK)
		fcntl(c, F_SETFL, O_NONBLOCK);
	address_of(ends[c].peer, ends[c].peer_port, a, n);
	return c;
}

int accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return accept4(fd, a, n, 0);
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
		end_tell(fd, e, END, NULL, 0);
	return 0;
}

int close(int fd)
{
	struct end *e = end_of(fd);

	if (e && e->connected)
		end_tell(fd, e, END, NULL, 0);
	if (e) {
		free(e->buffer);
		*e = (struct end){0};
	}
	return (int)syscall(SYS_close, fd);
}
