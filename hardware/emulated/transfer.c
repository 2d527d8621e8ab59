/* Bytes to and from sockets of the management network; of all other descriptors these calls are the kernel's */
#include "emulated.h"
#include "keeper.h"
#include "network.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t get(int fd, struct end *e, void *to, size_t n, int flags)
{
	uint64_t next;
	size_t done = 0;

	if (!e->connected && !e->connecting) {
		errno = ENOTCONN;
		return -1;
	}
	while (done < n) {
		if (!end_left(e)) {
			if (done && !(flags & MSG_WAITALL))
				break;
			if (!network_ready(fd, railbed_now(0), &next)) {
				if (flags & MSG_DONTWAIT || !end_blocks(fd)) {
					errno = EAGAIN;
					return done ? (ssize_t)done : -1;
				}
				end_wait(fd);
			}
			if (!end_take(fd, e))
				break;
			continue;
		}
		size_t k = end_left(e) < n - done ? end_left(e) : n - done;
		memcpy((uint8_t *)to + done, end_bytes(e), k);
		done += k;
		if (flags & MSG_PEEK)
			break;
		e->at += k;
	}
	return (ssize_t)done;
}

/* Wait until a packet may be sent; false, with errno, if that does not come, or is not waited for */
static bool wait_for_room(int fd, struct end *e, int flags)
{
	for (;;) {
		uint64_t now = railbed_now(0), next = now + STEP_PS;
		if (end_has_room(fd, e, now, &next))
			return true;
		errno = railbed_lost() ? ENETDOWN : EPIPE;
		if (railbed_lost() || end_is_broken(e, now)) {
			if (!(flags & MSG_NOSIGNAL))
				raise(SIGPIPE);
			return false;
		}
		errno = EAGAIN;
		if (flags & MSG_DONTWAIT || !end_blocks(fd))
			return false;
		railbed_wait(next);
	}
}

static ssize_t put(int fd, struct end *e, const void *from, size_t n, int flags)
{
	uint64_t next;

	if (e->connecting)
		connection_advance(fd, e, railbed_now(0), &next);
	if (!e->connected) {
		errno = e->connecting ? EAGAIN : ENOTCONN;
		return -1;
	}
	for (size_t at = 0; at < n; at += MOST) {
		if (!wait_for_room(fd, e, flags))
			return at ? (ssize_t)at : -1;
		end_tell(fd, e, DATA, (const uint8_t *)from + at, n - at < MOST ? n - at : MOST, 0);
	}
	return (ssize_t)n;
}

/* Of a descriptor of the kernel's, which may have to wait for that */
static ssize_t taken(long call, int fd, void *to, size_t n, int flags)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool begun = railbed_open() && !(flags & MSG_DONTWAIT) && !syscall(SYS_poll, &p, 1, 0) && end_blocks(fd) && outside_begin();
	ssize_t got = KERNEL(call, fd, to, n, flags, NULL, NULL);

	outside_end(begun);
	return got;
}

ssize_t recvfrom(int fd, void *restrict to, size_t n, int flags, struct sockaddr *restrict a, socklen_t *restrict room)
{
	struct end *e = end_of(fd);

	return e ? get(fd, e, to, n, flags) : KERNEL(SYS_recvfrom, fd, to, n, flags, a, room);
}

ssize_t sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *a, socklen_t room)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n, flags) : KERNEL(SYS_sendto, fd, from, n, flags, a, room);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct end *e = end_of(fd);
	ssize_t whole = 0;

	if (!e)
		return KERNEL(SYS_sendmsg, fd, m, flags);
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		ssize_t some = put(fd, e, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len, flags);
		if (some < 0)
			return whole ? whole : -1;
		whole += some;
		if ((size_t)some < m->msg_iov[i].iov_len)
			break;
	}
	return whole;
}

ssize_t writev(int fd, const struct iovec *v, int count)
{
	struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)count};

	return end_of(fd) ? sendmsg(fd, &m, 0) : KERNEL(SYS_writev, fd, v, count);
}

/* The first piece alone: fewer bytes than there is room for are no mistake */
ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct end *e = end_of(fd);

	if (!e)
		return taken(SYS_recvmsg, fd, m, (size_t)flags, flags);
	m->msg_controllen = m->msg_namelen = 0;
	m->msg_flags = 0;
	return m->msg_iovlen ? get(fd, e, m->msg_iov[0].iov_base, m->msg_iov[0].iov_len, flags) : 0;
}

ssize_t readv(int fd, const struct iovec *v, int count)
{
	struct end *e = end_of(fd);

	if (!e)
		return taken(SYS_readv, fd, (void *)(uintptr_t)v, (size_t)count, 0);
	return count > 0 ? get(fd, e, v[0].iov_base, v[0].iov_len, 0) : 0;
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict n)
{
	struct end *e = end_of(fd);
	int is = 0; /* nothing is set */

	if (!e)
		return (int)KERNEL(SYS_getsockopt, fd, level, name, value, n);
	if (level == SOL_SOCKET && name == SO_ERROR) {
		is = e->error;
		e->error = 0;
	} else if (level == SOL_SOCKET) {
		is = name == SO_TYPE ? SOCK_STREAM : name == SO_DOMAIN ? AF_INET : name == SO_ACCEPTCONN ? e->listening : 0;
	}
	memset(value, 0, *n);
	memcpy(value, &is, *n < sizeof is ? *n : sizeof is);
	return 0;
}

ssize_t recv(int fd, void *to, size_t n, int flags)
{
	struct end *e = end_of(fd);

	return e ? get(fd, e, to, n, flags) : taken(SYS_recvfrom, fd, to, n, flags);
}

ssize_t send(int fd, const void *from, size_t n, int flags)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n, flags) : KERNEL(SYS_sendto, fd, from, n, flags, NULL, 0);
}

ssize_t read(int fd, void *to, size_t n)
{
	struct end *e = end_of(fd);

	return e ? get(fd, e, to, n, 0) : taken(SYS_read, fd, to, n, 0);
}

ssize_t write(int fd, const void *from, size_t n)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n, 0) : KERNEL(SYS_write, fd, from, n);
}

/* What is written of a stream stands in the program's memory */
int fflush(FILE *f)
{
	static __typeof__(&fflush) real;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "fflush");
	polling_pause();
	return real(f);
}
