/* The management network: a program's TCP sockets, between ranks whose hosts have no interfaces
 *
 * A socket is a unix socket in a folder that all containers share, and each write a packet (packets.c) that says when it
 * arrives: LATENCY_PS after it was written.  Who waits for one steps on by a little less than that.  So what may have been
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
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock network_lock;
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
	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &(int){KERNEL_BUFFER}, sizeof(int));
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

static int is_ready(int fd, struct end *e, uint64_t now, uint64_t *next)
{
	struct packet h;

	if (e->listening)
		return connection_next(fd, e, now, next) >= 0 || railbed_lost();
	if (e->connecting && !connection_advance(fd, e, now, next))
		return 0;
	if (!e->connected)
		return 0;
	e->eof = e->eof || railbed_lost(); /* nobody can tell any more when something would come */
	if (end_left(e) || e->eof)
		return 1;
	int there = end_first(fd, e, &h);
	if (there > 0 && h.arrives > now) {
		*next = h.arrives < *next ? h.arrives : *next;
		return 0;
	}
	return there != 0;
}

/* network_ready() - Is there something to read, or an end, at that time?  Else when to look again at the latest */
int network_ready(int fd, uint64_t now, uint64_t *next)
{
	*next = now + STEP_PS;
	lock_take(&network_lock);
	struct end *e = end_of(fd);
	int ready = !e || is_ready(fd, e, now, next);
	lock_give(&network_lock);
	return ready;
}

static short events_of(int fd, struct end *e, uint64_t now, uint64_t *next)
{
	short in = is_ready(fd, e, now, next) ? POLLIN : 0;

	if (e->error)
		return POLLIN | POLLOUT | POLLERR | POLLHUP;
	return in | (e->connected && (end_has_room(fd, e, now, next) || end_is_broken(e, now)) ? POLLOUT : 0);
}

/* network_events() - As poll has them */
short network_events(int fd, uint64_t now, uint64_t *next)
{
	*next = now + STEP_PS;
	lock_take(&network_lock);
	struct end *e = end_of(fd);
	short events = e ? events_of(fd, e, now, next) : POLLNVAL; /* another thread has closed it */
	lock_give(&network_lock);
	return events;
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
	lock_take(&network_lock);
	if (e) {
		for (int i = 0; i < e->pendings; i++)
			syscall(SYS_close, e->pending[i]);
		free(e->pending);
		end_free(e);
		*e = (struct end){0};
	}
	lock_give(&network_lock);
	waiting_forget(fd);
	timers_forget(fd);
	return (int)syscall(SYS_close, fd);
}

/* What a program has not closed when it ends is over then, and not when the kernel comes to it.  A child's ends are its
 * parent's, and one with threads may have another that waits
 */
__attribute__((destructor)) static void leave(void)
{
	if (!__libc_single_threaded || !railbed_open())
		return;
	for (int fd = 0; fd < (int)(sizeof ends / sizeof *ends); fd++)
		if (ends[fd].used && ends[fd].connected)
			end_tell(fd, &ends[fd], END, NULL, 0, 0);
}

/* Another thread may have had it */
static void in_child(void)
{
	network_lock = (struct lock){0};
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
