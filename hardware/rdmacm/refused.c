/* What there is not: sockets over RDMA, and multicast.  No descriptor is such a socket, and each call says so as if it
 * were given one that is none
 */
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <sys/select.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

static int refuse(int error)
{
	errno = error;
	return -1;
}

#define NONE(type, name, ...)                                                                                               \
	type name(__VA_ARGS__)                                                                                              \
	{                                                                                                                   \
		return refuse(EBADF);                                                                                       \
	}

int rsocket(int domain, int type, int protocol)
{
	return refuse(EOPNOTSUPP);
}

NONE(int, rbind, int fd, const struct sockaddr *a, socklen_t n)
NONE(int, rlisten, int fd, int backlog)
NONE(int, raccept, int fd, struct sockaddr *a, socklen_t *n)
NONE(int, rconnect, int fd, const struct sockaddr *a, socklen_t n)
NONE(int, rshutdown, int fd, int how)
NONE(int, rclose, int fd)
NONE(ssize_t, rrecv, int fd, void *to, size_t n, int flags)
NONE(ssize_t, rrecvfrom, int fd, void *to, size_t n, int flags, struct sockaddr *a, socklen_t *room)
NONE(ssize_t, rrecvmsg, int fd, struct msghdr *m, int flags)
NONE(ssize_t, rsend, int fd, const void *from, size_t n, int flags)
NONE(ssize_t, rsendto, int fd, const void *from, size_t n, int flags, const struct sockaddr *a, socklen_t room)
NONE(ssize_t, rsendmsg, int fd, const struct msghdr *m, int flags)
NONE(ssize_t, rread, int fd, void *to, size_t n)
NONE(ssize_t, rreadv, int fd, const struct iovec *v, int count)
NONE(ssize_t, rwrite, int fd, const void *from, size_t n)
NONE(ssize_t, rwritev, int fd, const struct iovec *v, int count)
NONE(int, rgetpeername, int fd, struct sockaddr *a, socklen_t *n)
NONE(int, rgetsockname, int fd, struct sockaddr *a, socklen_t *n)
NONE(int, rsetsockopt, int fd, int level, int name, const void *value, socklen_t n)
NONE(int, rgetsockopt, int fd, int level, int name, void *value, socklen_t *n)
NONE(int, rfcntl, int fd, int command, ...)
NONE(off_t, riomap, int fd, void *at, size_t n, int protection, int flags, off_t offset)
NONE(int, riounmap, int fd, void *at, size_t n)
NONE(size_t, riowrite, int fd, const void *from, size_t n, off_t offset, int flags)

/* These take other descriptors, too */
int rpoll(struct pollfd *p, nfds_t n, int ms)
{
	return poll(p, n, ms);
}

int rselect(int n, fd_set *in, fd_set *out, fd_set *wrong, struct timeval *t)
{
	return select(n, in, out, wrong, t);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *a, void *context)
{
	return refuse(EOPNOTSUPP);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *a, void *context)
{
	return refuse(EOPNOTSUPP);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *a)
{
	return refuse(EOPNOTSUPP);
}
