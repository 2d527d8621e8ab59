/* The session: commands to fabricd over the rank's worker socket, and its answers
 *
 * Theory of Operation
 *
 * Commands are gathered, and go out with the next WAIT; at once on the real clock, and in a program with threads.  An
 * answer is asked for by WAIT alone, so a process that has nothing to wait for says many things in one packet.  The
 * clock is that of the last answer; `spend` is what the process itself has used since (reading clocks), and `asked` says
 * that fabricd has added to it what posts cost.
 *
 * Waiting is in wait.c.
 *
 * When fabricd ends the session the NIC is gone: it is said once on stderr, and every call fails from then on.
 */
#include "railbed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "share.h"
#include "wire.h"

#define SIGNALS_US 100000 /* who waits looks for signals after so long on the machine's clock */

struct session session = {
	.fd = -1, .records = UINT32_MAX, .until = NEVER, .alarm = NEVER};
__thread unsigned session_depth;
static void (*activation)(void); /* of the time library, if it is there */
const struct railbed_watch *session_watch; /* likewise */

/* System calls by number: a program, or the time library, may have put its own in the place of the functions */
/* session_receive() - The next packet; no lock is needed while a thread waits */
long session_receive(void)
{
	bool told = false;
	long got;

	for (;;) {
		got = syscall(SYS_recvfrom, session.fd, session.in, sizeof session.in - 1, 0, NULL, NULL);
		if (got >= 0 || (errno != EINTR && errno != EAGAIN))
			return got;
		if (!told && session_signalled()) {
			told = true;
			session_interrupt();
		}
	}
}

void session_lock(void)
{
	lock_take(&session.lock);
	session_depth++;
}

void session_unlock(void)
{
	if (session.moved && !__libc_single_threaded)
		bell_ring(&session.changed, INT_MAX);
	session.moved = false;
	bool due = --session_depth == 0 && session.alarm <= session.now + session.spend;
	bool free = session_depth == 0;
	lock_give(&session.lock);
	if (free)
		session_signals();
	if (due && session_watch)
		session_watch->due(session.now + session.spend);
}

/* session_fail() - The NIC cannot be used any more, and why */
void session_fail(const char *what, const char *why)
{
	if (!session.lost)
		fprintf(stderr, "railbed: the NIC is gone: %s%s%s\n", what, *why ? ": " : "", why);
	session.lost = true;
	if (session.fd >= 0)
		syscall(SYS_close, session.fd);
	session.fd = -1;
	session.out_len = 0;
	for (struct qp *q = qps; q; q = q->next)
		qp_lost(q);
}

static bool out(const void *p, size_t n, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {(void *)(uintptr_t)p, n};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

	if (fd >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	long sent;
	do
		sent = syscall(SYS_sendmsg, session.fd, &m, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent == (long)n; /* if not, what fabricd has said last is read */
}

/* session_flush() - What was said goes out */
void session_flush(void)
{
	size_t n = session.out_len;

	session.out_len = 0;
	if (n && session.fd >= 0)
		out(session.out, n, -1);
}

/* session_interrupt() - Whoever waits waits no longer */
void session_interrupt(void)
{
	static const struct {
		uint16_t op, length;
		uint32_t zero;
	} anything = {PROGRESS, 8, 0};

	out(&anything, sizeof anything, -1);
}

/* session_begin() - There is something to say: no thread waits any more when it returns */
void session_begin(void)
{
	if (!session.waiting)
		return;
	session.wanted++;
	session_interrupt();
	while (session.waiting)
		lock_wait(&session.lock, &session.changed);
	session.wanted--;
	session.moved = true;
}

/* session_now() - What was said goes out now, unless the next WAIT is bound to come */
void session_now(void)
{
	if (session.real || !__libc_single_threaded)
		session_flush();
}

/* session_command() - Room for the body of a command of that many bytes, all zero */
void *session_command(uint16_t op, uint16_t body)
{
	uint16_t len = (uint16_t)(8 + ((body + 7) & ~7));

	if (session.spend && op != SPEND) {
		uint64_t spent = session.spend;
		session.spend = 0;
		session.now += spent;
		memcpy(session_command(SPEND, 8), &spent, 8);
	}
	if (session.out_len + len > sizeof session.out)
		session_flush();
	uint8_t *p = session.out + session.out_len;
	session.last = session.out_len;
	memset(p, 0, len);
	memcpy(p, &op, 2);
	memcpy(p + 2, &len, 2);
	session.out_len += len;
	session.asked = true;
	session.said++;
	session.looks = 0;
	return p + 8;
}

/* session_heard() - Is what was received, so many bytes, of that kind?  If not, the session is over */
bool session_heard(long n, uint16_t kind)
{
	uint16_t got = 0;

	if (n >= 8)
		memcpy(&got, session.in, 2);
	if (got == kind)
		return true;
	session.in[n > 0 ? n : 0] = 0;
	session_fail(got == REPLY_ERROR ? (char *)session.in + 8 : "fabricd has closed the session", "");
	return false;
}

/* session_exchange() - Send a command, the last one, with a descriptor (or -1), and take in the answer of that kind */
bool session_exchange(int fd, uint16_t kind)
{
	size_t n = session.out_len, last = session.last;

	session.out_len = 0;
	if (session.fd < 0)
		return false;
	if (last && fd >= 0)
		out(session.out, last, -1);
	else
		last = 0;
	out(session.out + last, n - last, fd);
	return session_heard(session_receive(), kind);
}

/* session_open() - The process's session, opened if it has none; false, with errno, if there can be none */
bool session_open(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (session.fd >= 0)
		return true;
	const char *path = getenv("RAILBED_SOCKET");
	errno = EIO;
	if (session.lost)
		return false;
	snprintf(at.sun_path, sizeof at.sun_path, "%s", path ? path : "/run/railbed/worker.sock");
	session.fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (session.fd < 0 || syscall(SYS_connect, session.fd, &at, sizeof at)) {
		session_fail(at.sun_path, strerror(errno));
		errno = ENODEV;
		return false;
	}
	const char *its = getenv("RAILBED_PLACE"); /* among programs that are started together */
	uint16_t number = its ? (uint16_t)(strtoul(its, NULL, 10) & PLACE_MOST) : 0;
	syscall(SYS_setsockopt, session.fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = SIGNALS_US}, sizeof(struct timeval));
	const struct wire_hello hello = {HELLO_MAGIC, WORKER_PROTOCOL, (uint16_t)(HELLO_PROGRAM | number << 1)};
	memcpy(session_command(HELLO, sizeof hello), &hello, sizeof hello);
	if (!session_exchange(-1, REPLY_WELCOME)) {
		errno = EIO;
		return false;
	}
	uint32_t w[8];
	memcpy(w, session.in + 8, sizeof w);
	session.rank = w[1];
	session.ranks = w[2];
	session.real = w[3] & 1;
	memcpy(&session.now, &w[4], 8);
	session.mtu = w[6];
	session.pcie = w[7] * PS_PER_NS;
	session.asked = false;
	if (activation && !session.real)
		activation();
	return true;
}

/* session_pipe() - What records bring is written to ends[1], and nobody waits there for whom it is to */
bool session_pipe(int ends[2])
{
	return !pipe2(ends, O_CLOEXEC) && !fcntl(ends[1], F_SETFL, O_NONBLOCK);
}

/* session_region() - Peers may write there from now on, or no more */
void session_region(uint64_t start, uint64_t end, bool there)
{
	session.open += there ? 1 : -1u;
	if (session_watch && !session.real)
		session_watch->region(start, end, there);
}

/* session_polls() - Is memory looked at again and again, that a peer may write to? */
bool session_polls(void)
{
	return session_watch && session_watch->polls();
}

/* session_pause() - The process's memory is looked at as a whole */
void session_pause(void)
{
	if (session_watch)
		session_watch->pause();
}

/* railbed_watch() - Who is told of memory that peers may write to */
void railbed_watch(const struct railbed_watch *how)
{
	session_watch = how;
}

/* railbed_activate() - What is to be done once the session is there and has the virtual clock */
void railbed_activate(void (*how)(void))
{
	activation = how;
}

/* The process ends, and its other threads with it: none goes on with a session that is over, as the lock stays ours */
__attribute__((destructor)) static void leave(void)
{
	session_lock();
	if (session.fd < 0 || session.waiting)
		return; /* a thread that waits: the end of the process is said by its socket */
	session_command(BYE, 0);
	session_flush();
}

static void before_fork(void)
{
	session_lock();
	session_pause();
	share_before_fork();
}

static void in_parent(void)
{
	share_in_parent();
	session_unlock();
}

/* A child has copies of its parent's memory, but not its NIC */
static void in_child(void)
{
	share_in_child();
	session.lock = (struct lock){0};
	session.changed = (struct bell){0};
	session.waiting = session.resting = false;
	session.wanted = session.open = session_depth = 0;
	if (session.fd >= 0)
		syscall(SYS_close, session.fd);
	session.fd = -1;
	session.lost = false;
	session.out_len = 0;
	session.spend = 0;
	session.posted = 0;
	session.forks++;
	demand_child();
	listener_child();
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}
