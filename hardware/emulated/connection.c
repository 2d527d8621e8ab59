/* Connections of the management network: bound, listened for, asked for, accepted
 *
 * They take what TCP's three segments do: who connects is connected two latencies later, and the other can accept it
 * after three, whether it waits for it or not.  Whether somebody listens is seen one latency after it was asked for, and
 * as of then: when a socket began to listen is its file's time of change.
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
#include <sys/un.h>
#include <unistd.h>

#define FOLDER "/run/railbed/network" /* if RAILBED_NETWORK does not name another */
#define FIRST_EPHEMERAL 32768

static uint16_t ephemeral = FIRST_EPHEMERAL;

static struct sockaddr_un path_of(uint32_t rank, uint16_t port)
{
	struct sockaddr_un u = {.sun_family = AF_UNIX};
	const char *folder = getenv("RAILBED_NETWORK");

	snprintf(u.sun_path, sizeof u.sun_path, "%s/%u-%u", folder ? folder : FOLDER, rank, port);
	return u;
}

static uint16_t next_ephemeral(void)
{
	if (!++ephemeral)
		ephemeral = FIRST_EPHEMERAL;
	return ephemeral;
}

/* What an ended program has left there is taken away; what is listened to is not */
static bool is_listened_to(const struct sockaddr_un *u)
{
	int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool yes = fd >= 0 && !syscall(SYS_connect, fd, u, sizeof *u);

	if (fd >= 0)
		syscall(SYS_close, fd);
	return yes;
}

static int bind_to(int fd, uint16_t port)
{
	struct sockaddr_un u = path_of(railbed_rank(), port);

	if (!access(u.sun_path, F_OK)) {
		if (is_listened_to(&u)) {
			errno = EADDRINUSE;
			return -1;
		}
		unlink(u.sun_path);
	}
	return (int)syscall(SYS_bind, fd, &u, sizeof u);
}

int bind(int fd, const struct sockaddr *a, socklen_t n)
{
	struct end *e = end_of(fd);
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;

	if (!e)
		return (int)syscall(SYS_bind, fd, a, n);
	if (n < sizeof *in || a->sa_family != AF_INET || e->port) {
		errno = EINVAL;
		return -1;
	}
	uint32_t to = ntohl(in->sin_addr.s_addr);
	if (to && to >> 24 != 127 && in->sin_addr.s_addr != railbed_address(railbed_rank())) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	uint16_t port = ntohs(in->sin_port);
	int wrong = bind_to(fd, port ? port : next_ephemeral());
	for (int tries = 0; wrong && !port && errno == EADDRINUSE && tries < FIRST_EPHEMERAL; tries++)
		wrong = bind_to(fd, next_ephemeral());
	if (!wrong)
		e->port = port ? port : ephemeral;
	return wrong;
}

int listen(int fd, int n)
{
	struct end *e = end_of(fd);

	if (!e)
		return (int)syscall(SYS_listen, fd, n);
	struct sockaddr_un u = path_of(railbed_rank(), e->port);
	uint64_t ns = railbed_now(0) / PS_PER_NS;
	struct timespec now[2] = {{(time_t)(ns / 1000000000), (long)(ns % 1000000000)}};
	now[1] = now[0];
	e->listening = true;
	utimensat(AT_FDCWD, u.sun_path, now, 0);
	return (int)syscall(SYS_listen, fd, n);
}

/* Did somebody listen there at that time (ps)? */
static bool listened(const struct sockaddr_un *u, uint64_t then)
{
	struct stat s;

	return !stat(u->sun_path, &s) && ((uint64_t)s.st_mtim.tv_sec * 1000000000 + (uint64_t)s.st_mtim.tv_nsec) * PS_PER_NS <= then;
}

/* connection_advance() - What happens until now to one that connects: has it come to an end?  Else when to look again */
bool connection_advance(int fd, struct end *e, uint64_t now, uint64_t *next)
{
	*next = e->due;
	if (e->connecting && !e->tried && now >= e->due) {
		struct sockaddr_un u = path_of(e->peer, e->peer_port);
		uint64_t third = e->began + 3 * LATENCY_PS, soonest = now + LATENCY_PS;
		bool there = listened(&u, e->began + LATENCY_PS);
		e->error = there && !syscall(SYS_connect, fd, &u, sizeof u) ? 0 : ECONNREFUSED;
		if (!e->error)
			end_tell(fd, e, HELLO, NULL, 0, third > soonest ? third : soonest);
		e->tried = true;
		*next = e->due = e->began + 2 * LATENCY_PS;
	}
	if (e->connecting && e->tried && now >= e->due) {
		e->connecting = false;
		e->connected = !e->error;
	}
	return !e->connecting;
}

static int outcome(struct end *e)
{
	int wrong = e->error;

	e->error = 0;
	errno = wrong ? wrong : errno;
	return wrong ? -1 : 0;
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
	struct end *e = end_of(fd);
	const struct sockaddr_in *in = (const struct sockaddr_in *)a;
	uint32_t rank = railbed_rank();
	uint64_t next;

	if (!e)
		return (int)syscall(SYS_connect, fd, a, n);
	if (e->connected || e->connecting) {
		errno = e->connected || connection_advance(fd, e, railbed_now(0), &next) ? EISCONN : EALREADY;
		return -1;
	}
	if (n < sizeof *in || in->sin_family != AF_INET) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	if (ntohl(in->sin_addr.s_addr) >> 24 != 127 && !railbed_rank_of(in->sin_addr.s_addr, &rank)) {
		errno = EHOSTUNREACH;
		return -1;
	}
	e->port = e->port ? e->port : next_ephemeral();
	e->peer = rank;
	e->peer_port = ntohs(in->sin_port);
	e->connecting = true;
	e->tried = false;
	e->began = railbed_now(0);
	e->due = e->began + LATENCY_PS + APART_PS; /* all that was done until its packet is there has been done then */
	if (!end_blocks(fd)) {
		errno = EINPROGRESS;
		return -1;
	}
	while (!connection_advance(fd, e, railbed_now(0), &next))
		railbed_wait(next);
	return outcome(e);
}

/* --- accepting --- */
static void take_in(int fd, struct end *e)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int c;

	while (syscall(SYS_poll, &p, 1, 0) == 1 && (c = (int)syscall(SYS_accept4, fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		int *more = realloc(e->pending, (size_t)(e->pendings + 1) * sizeof *more);
		if (!more) {
			syscall(SYS_close, c);
			return;
		}
		e->pending = more;
		e->pending[e->pendings++] = c;
	}
}

static void forget(struct end *e, int which)
{
	memmove(&e->pending[which], &e->pending[which + 1], (size_t)(e->pendings - which - 1) * sizeof *e->pending);
	e->pendings--;
}

static bool earlier(const struct packet *a, const struct packet *b)
{
	if (a->arrives != b->arrives)
		return a->arrives < b->arrives;
	return a->rank != b->rank ? a->rank < b->rank : a->port < b->port;
}

/* connection_next() - Which of those that want to be accepted is the first that may be by now; -1: none, and when to look
 * again
 */
int connection_next(int fd, struct end *e, uint64_t now, uint64_t *next)
{
	struct packet h, first;
	int which = -1;

	take_in(fd, e);
	for (int i = e->pendings - 1; i >= 0; i--) {
		int there = pending_first(e->pending[i], &h);
		if (there < 0) { /* gone meanwhile, or nobody who connects */
			syscall(SYS_close, e->pending[i]);
			forget(e, i);
			which -= which > i;
		} else if (there && h.arrives > now) {
			*next = h.arrives < *next ? h.arrives : *next;
		} else if (there && (which < 0 || earlier(&h, &first))) {
			which = i;
			first = h;
		}
	}
	return which;
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	struct end *e = end_of(fd);
	uint64_t next;

	if (!e)
		return (int)syscall(SYS_accept4, fd, a, n, flags);
	if (end_blocks(fd))
		end_wait(fd);
	uint64_t now = railbed_now(0);
	lock_take(&network_lock);
	int which = connection_next(fd, e, now, &next), c = which < 0 ? -1 : e->pending[which];
	uint16_t port = e->port;
	if (which >= 0)
		forget(e, which);
	lock_give(&network_lock);
	if (which < 0) {
		errno = railbed_lost() ? ENETDOWN : EAGAIN;
		return -1;
	}
	struct end *new = end_new(c);
	if (!new)
		return -1;
	new->connected = true;
	new->port = port;
	end_take(c, new); /* whose it is */
	fcntl(c, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	fcntl(c, F_SETFD, flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
	getpeername(c, a, n);
	return c;
}

int accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return accept4(fd, a, n, 0);
}
