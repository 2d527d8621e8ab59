/* Workers' messages
 *
 * Theory of Operation
 *
 * A packet is a series of commands.  All of it comes from a process that is
 * not trusted: every length, key, number and range is checked here, before
 * anything acts on it, and whatever does not hold ends that worker's session.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/close_later.h"
#include "base/patience.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "worker/command.h"
#include "worker/worker.h"

#define FILES_MAX 253 /* SCM_MAX_FD of the kernel's */

static const struct {
	const char *(*handle)(struct message *m);
	uint16_t body; /* bytes after the header */
	bool more;     /* or more than that */
} commands[] = {
#define COMMAND(number, name, handle, bytes, more, body) [name] = {command_##handle, bytes, more},
#include "worker/commands.def"
#undef COMMAND
};

/* Commands that only a rank's worker has, or only programs */
#define OF_JOBS (1ull << CONNECT | 1ull << SYNC | 1ull << GROUP | 1ull << POST_OFFLOAD | 1ull << LEAVE | 1ull << AWAIT_PROGRAMS | 1ull << FORESEE)
#define OF_PROGRAMS (UINT64_MAX << DEREGISTER & ~OF_JOBS)

static const char *command(struct message *m, struct view *packet, size_t whole)
{
	uint16_t op = get_le16(packet), length = get_le16(packet);

	get_le32(packet);
	if (packet->bad || length < 8 || length % 8)
		return "command cut short, or of a length that is no multiple of 8";
	const uint8_t *body = view_take(packet, length - 8u);
	if (!body)
		return "command longer than its packet";
	if (op == 0 || op >= sizeof commands / sizeof commands[0])
		return "unknown command";
	if (length - 8u < commands[op].body || (length - 8u > commands[op].body && !commands[op].more))
		return "command of a wrong length";
	if (m->w->state == WORKER_ABSENT && op != HELLO)
		return "HELLO must come first";
	if ((m->w->program ? OF_JOBS : OF_PROGRAMS) >> op & 1)
		return m->w->program ? "a command of ranks in a job" : "a command of programs";
	m->v = view_of(body, length - 8u);
	m->alone = length == whole;
	m->last = packet->left == 0;
	return commands[op].handle(m);
}

/* worker_says() - A worker says what it has said beforehand
 * Return: NULL, or what is wrong
 */
const char *worker_says(struct fabric *f, struct worker *w, const uint8_t *data, size_t len)
{
	struct message m = {.f = f, .w = w, .memfd = -1};
	struct view packet = view_of(data, len);
	const char *wrong = NULL;

	while (!wrong && packet.left)
		wrong = command(&m, &packet, len);
	return wrong;
}

/* worker_message() - A packet from a worker
 * @data:	Its bytes
 * @memfd:	File descriptor that came with it, or -1; stays the caller's
 */
void worker_message(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd)
{
	struct message m = {.f = f, .w = w, .memfd = memfd};
	struct view packet = view_of(data, len);
	const char *wrong = NULL;

	patience_begin(&w->patience);
	w->hung = false;
	if (w->state == WORKER_WAITING && w->program)
		program_interrupt(f, w);
	else if (w->state == WORKER_WAITING && w->hosts)
		worker_interrupt(f, w);
	else if (w->state == WORKER_WAITING)
		wrong = "a packet while it waits";
	if (!wrong && f->clock.mode == CLOCK_REAL && w->now < f->clock.now)
		w->now = f->clock.now;
	if (!len)
		wrong = "an empty packet";
	while (!wrong && packet.left && m.w->fd >= 0)
		wrong = command(&m, &packet, len);
	if (!wrong && memfd >= 0 && !m.took)
		wrong = "a file with a command that takes none";
	if (wrong)
		worker_end(f, m.w, WORKER_LOST, wrong);
	clock_worker_changed(f, m.w);
}

/* Take the descriptors out of a message's control part; returns how many */
static int descriptors(struct msghdr *msg, int fds[FILES_MAX])
{
	int count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t bytes = c->cmsg_len - CMSG_LEN(0);
			for (size_t k = 0; k < bytes / sizeof(int) && count < FILES_MAX; k++)
				memcpy(&fds[count++], CMSG_DATA(c) + k * sizeof(int), sizeof(int));
		}
	return count;
}

/* worker_readable() - Take in what a worker has sent
 *
 * There is room for all the descriptors that a packet can carry: those that the kernel finds no room for it closes
 * itself, here and now.
 */
void worker_readable(struct fabric *f, struct worker *w)
{
	static _Alignas(8) uint8_t data[MESSAGE_MAX];
	static _Alignas(struct cmsghdr) uint8_t ancillary[CMSG_SPACE(FILES_MAX * sizeof(int))];

	if (w->hosts && w->program) {
		w->hosts = w->state == WORKER_WAITING; /* once: others that have waited listen to it, too */
		host_listens(f, &f->workers[w->rank]);
	}
	for (int i = 0; i < 16 && w->fd >= 0; i++) {
		struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ancillary, .msg_controllen = sizeof ancillary};
		int fds[FILES_MAX];
		ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		int count = n < 0 ? 0 : descriptors(&msg, fds);
		if (n == 0 || (n < 0 && errno == ECONNRESET)) /* it had, or had not, read all that it was sent */
			worker_end(f, w, WORKER_LOST, "its process has ended");
		else if (n < 0)
			worker_end(f, w, WORKER_LOST, strerror(errno));
		else if (count > 1 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
			worker_end(f, w, WORKER_LOST, "packet longer than 64 KiB, or with more than one file");
		else
			worker_message(f, w, data, (size_t)n, count ? fds[0] : -1);
		while (count)
			close_later(fds[--count]);
	}
}
