/* Bytes to and from sockets of the management network; of all other descriptors these calls are the kernel's */
#include "emulated.h"
#include "network.h"

#include <errno.h>
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
		if (e->at == e->len) {
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
		size_t k = e->len - e->at < n - done ? e->len - e->at : n - done;
		memcpy((uint8_t *)to + done, e->buffer + e->at, k);
		done += k;
		if (flags & MSG_PEEK)
			break;
		e->at += k;
	}
	return (ssize_t)done;
}

static ssize_t put(int fd, struct end *e, const void *from, size_t n)
{
	uint64_t next;

	if (e->connecting)
		connection_advance(fd, e, railbed_now(0), &next);
	if (!e->connected) {
		errno = e->connecting ? EAGAIN : ENOTCONN;
		return -1;
	}
	for (size_t at = 0; at < n; at += MOST)
		end_tell(fd, e, DATA, (const uint8_t *)from + at, n - at < MOST ? n - at : MOST, 0);
	return (ssize_t)n;
}

ssize_t recvfrom(int fd, void *restrict to, size_t n, int flags, struct sockaddr *restrict a, socklen_t *restrict room)
{
	struct end *e = end_of(fd);

	return e ? get(fd, e, to, n, flags) : syscall(SYS_recvfrom, fd, to, n, flags, a, room);
}

ssize_t sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *a, socklen_t room)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n) : syscall(SYS_sendto, fd, from, n, flags, a, room);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct end *e = end_of(fd);
	ssize_t whole = 0;

	if (!e)
		return syscall(SYS_sendmsg, fd, m, flags);
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		ssize_t put_now = put(fd, e, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
		if (put_now < 0)
			return -1;
		whole += put_now;
	}
	return whole;
}

ssize_t writev(int fd, const struct iovec *v, int count)
{
	struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)count};

	return end_of(fd) ? sendmsg(fd, &m, 0) : syscall(SYS_writev, fd, v, count);
}

/* The first piece alone: fewer bytes than there is room for are no mistake */
ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct end *e = end_of(fd);

	if (!e)
		return syscall(SYS_recvmsg, fd, m, flags);
	m->msg_controllen = m->msg_namelen = 0;
	m->msg_flags = 0;
	return m->msg_iovlen ? get(fd, e, m->msg_iov[0].iov_base, m->msg_iov[0].iov_len, flags) : 0;
}

ssize_t readv(int fd, const struct iovec *v, int count)
{
	struct end *e = end_of(fd);

	if (!e)
		return syscall(SYS_readv, fd, v, count);
	return count > 0 ? get(fd, e, v[0].iov_base, v[0].iov_len, 0) : 0;
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict n)
{
	struct end *e = end_of(fd);
	int is = 0; /* nothing is set */

	if (!e)
		return (int)syscall(SYS_getsockopt, fd, level, name, value, n);
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

	return e ? get(fd, e, to, n, flags) : syscall(SYS_recvfrom, fd, to, n, flags, NULL, NULL);
}

ssize_t send(int fd, const void *from, size_t n, int flags)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n) : syscall(SYS_sendto, fd, from, n, flags, NULL, 0);
}

ssize_t read(int fd, void *to, size_t n)
{
	struct end *e = end_of(fd);

	return e ? get(fd, e, to, n, 0) : syscall(SYS_read, fd, to, n);
}

ssize_t write(int fd, const void *from, size_t n)
{
	struct end *e = end_of(fd);

	return e ? put(fd, e, from, n) : syscall(SYS_write, fd, from, n);
}
