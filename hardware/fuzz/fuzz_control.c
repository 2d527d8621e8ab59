/* The control protocol: bytes on a connection, in pieces, beside a subscriber and workers at work. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "control/control.h"
#include "engine/clock.h"
#include "engine/fabric.h"
#include "transport/qp.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct control_conn *conn_new(struct fabric *f, int *other_end)
{
	struct control_conn *c = calloc(1, sizeof *c);
	int fds[2];

	if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
		abort();
	c->fd = fds[0];
	c->file = -1;
	*other_end = fds[1];
	c->next = f->conns;
	f->conns = c;
	return c;
}

static void drain(int fd)
{
	static char answers[1 << 16];

	while (recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0)
		;
}

/* Bytes, and with them a file to write */
static bool say(int fd, const uint8_t *bytes, size_t n)
{
	_Alignas(struct cmsghdr) uint8_t ancillary[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = n};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ancillary, .msg_controllen = sizeof ancillary};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	int file = memfd_create("written", MFD_CLOEXEC);

	*head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
	memcpy(CMSG_DATA(head), &file, sizeof file);
	bool said = file >= 0 && sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	close(file);
	return said;
}

static void set_to_work(struct fabric *f)
{
	uint8_t packet[256];

	harness_connect(f, 0, 1, true);
	size_t n = post_send(packet, 16, WR_WRITE, 1, 1, 0, 0, 20000);
	harness_say(f, 0, packet, n + wait_for(packet + n, 1, UINT64_MAX), -1);
	harness_say(f, 1, packet, wait_for(packet, 9, UINT64_MAX), -1);
	harness_say(f, 2, packet, wait_for(packet, 9, 50000000), -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = input_of(data, len);
	uint8_t setting = next(&in);
	struct fabric *f = harness_open(setting & 2);
	int ends[2];

	if (setting & 1)
		set_to_work(f);
	struct control_conn *one = conn_new(f, &ends[0]), *two = conn_new(f, &ends[1]);
	static const char subscribe[] = "{\"op\": \"subscribe\", \"settles\": true}";
	control_line(f, two, subscribe, sizeof subscribe - 1);
	while (in.v.left && !one->closing) {
		size_t piece = 1u + next(&in) * 8u;
		const uint8_t *bytes = view_take(&in.v, piece < in.v.left ? piece : in.v.left);
		size_t n = piece < (size_t)(data + len - bytes) ? piece : (size_t)(data + len - bytes);
		if (say(ends[0], bytes, n))
			control_readable(f, one);
		f->stop = false;
		f->clock.mode = CLOCK_VIRTUAL;
		drain(ends[0]);
		drain(ends[1]);
		if (n & 1 && !one->closing)
			harness_run(f, 2);
	}
	harness_run(f, 10);
	close(ends[0]);
	close(ends[1]);
	harness_close(f);
	return 0;
}
