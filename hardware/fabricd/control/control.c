/* The control socket: JSON objects, one a line, over a unix stream socket.
 *
 * Answers and events are queued per connection and written when it can take
 * them; a connection that lets too much pile up is cut off.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/json.h"
#include "base/patience.h"
#include "control/control.h"
#include "control/sample.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "fault/fault.h"
#include "switch/ovs.h"
#include "worker/worker.h"

#define LINE_MAX_BYTES (16u << 20) /* 100,000 flows of a fault take 4 MiB */
#define QUEUE_MAX_BYTES (256u << 20)

bool control_open(struct fabric *f, const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof at.sun_path)
		return config_fail(f, "%s: path too long for a unix socket", path);
	strcpy(at.sun_path, path);
	unlink(path);
	f->control_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	mode_t mask = umask(0077);
	bool bound = f->control_fd >= 0 && !bind(f->control_fd, (struct sockaddr *)&at, sizeof at) &&
		     !listen(f->control_fd, 16);
	umask(mask);
	if (!bound)
		return config_fail(f, "%s: %s", path, strerror(errno));
	return watch_add(f, f->control_fd, WATCH_CONTROL_LISTEN, f);
}

void control_accept(struct fabric *f)
{
	int fd = accept4(f->control_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct control_conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);

	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	c->fd = fd;
	c->file = -1;
	patience_of(&c->patience, fd);
	c->next = f->conns;
	f->conns = c;
	if (!watch_add(f, fd, WATCH_CONTROL, c))
		c->closing = true;
}

static void file_forget(struct control_conn *c)
{
	if (c->file >= 0)
		close(c->file);
	c->file = -1;
}

static void conn_free(struct control_conn *c)
{
	file_forget(c);
	close(c->fd);
	json_decref(c->quiesce.id);
	json_decref(c->carried_out.id);
	free(c->in);
	free(c->out);
	free(c);
}

static void flush(struct fabric *f, struct control_conn *c)
{
	size_t sent = 0;

	while (sent < c->out_bytes) {
		ssize_t n = send(c->fd, c->out + sent, c->out_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			c->closing = true;
			return;
		}
		sent += (size_t)n;
	}
	if (sent)
		memmove(c->out, c->out + sent, c->out_bytes - sent);
	c->out_bytes -= sent;
	watch_set(f, c->fd, WATCH_CONTROL, c, EPOLLIN | (c->out_bytes ? EPOLLOUT : 0));
}

void control_writable(struct fabric *f, struct control_conn *c)
{
	flush(f, c);
}

/* control_send() - Queue an object for a connection; takes the reference */
void control_send(struct fabric *f, struct control_conn *c, json_t *object)
{
	char *text = c->closing ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(object);
	if (!text)
		return;
	size_t len = strlen(text) + 1;
	if (c->out_bytes + len > c->out_room) {
		size_t room = 2 * (c->out_bytes + len);
		char *out = room > QUEUE_MAX_BYTES ? NULL : realloc(c->out, room);
		if (!out) {
			c->closing = true;
			free(text);
			return;
		}
		c->out = out;
		c->out_room = room;
	}
	memcpy(c->out + c->out_bytes, text, len - 1);
	c->out[c->out_bytes + len - 1] = '\n';
	c->out_bytes += len;
	free(text);
	flush(f, c);
}

/* control_event() - Tell every subscriber; takes the reference to @fields */
void control_event(struct fabric *f, enum report kind, json_t *fields)
{
	json_object_set_new(fields, "event", json_string(report_name(kind)));
	json_object_set_new(fields, "time_ns", ns_json(f->clock.now));
	for (struct control_conn *c = f->conns; c; c = c->next)
		if (c->subscribed)
			control_send(f, c, json_incref(fields));
	log_keep(f, fields);
	json_decref(fields);
}

/* control_file() - The file that a request's sender has opened for us to write, or NULL */
FILE *control_file(struct control_conn *c)
{
	FILE *file = c->file < 0 ? NULL : fdopen(c->file, "wb");

	if (file)
		c->file = -1;
	return file;
}

/* Read what has come; a file that was handed over with it is kept for the request that it came with */
static ssize_t take_in(struct control_conn *c)
{
	_Alignas(struct cmsghdr) uint8_t ancillary[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {.iov_base = c->in + c->in_bytes, .iov_len = c->in_room - c->in_bytes};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ancillary, .msg_controllen = sizeof ancillary};
	ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);

	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		file_forget(c);
		memcpy(&c->file, CMSG_DATA(head), sizeof c->file);
	}
	return n;
}

/* control_readable() - Take in requests, line by line */
void control_readable(struct fabric *f, struct control_conn *c)
{
	if (c->in_bytes == c->in_room) {
		size_t room = c->in_room ? 2 * c->in_room : 4096;
		char *in = room > LINE_MAX_BYTES ? NULL : realloc(c->in, room);
		if (!in) {
			c->closing = true;
			return;
		}
		c->in = in;
		c->in_room = room;
	}
	ssize_t n = take_in(c);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		c->closing = true;
		return;
	}
	c->in_bytes += (size_t)n;
	patience_begin(&c->patience);
	c->silent = c->pinged = false;

	char *line = c->in, *end;
	while (!c->closing && (end = memchr(line, '\n', c->in_bytes - (size_t)(line - c->in)))) {
		control_line(f, c, line, (size_t)(end - line));
		line = end + 1;
	}
	c->in_bytes -= (size_t)(line - c->in);
	memmove(c->in, line, c->in_bytes);
	if (!c->in_bytes)
		file_forget(c);
}

/* fabric_idle() - Nothing is left that could happen by itself */
bool fabric_idle(const struct fabric *f)
{
	return events_idle(f) && !f->ovs->head && !f->clock.hold_left;
}

/* control_later() - A request is answered later; of two of a kind on one connection the last one is */
void control_later(struct later *l, const json_t *request, ps_t now)
{
	json_decref(l->id);
	*l = (struct later){.asked = true, .id = json_incref(json_object_get(request, "id")), .since = now};
}

static void answer_now(struct fabric *f, struct control_conn *c, struct later *l)
{
	if (!l->asked)
		return;
	json_t *answer = json_pack("{s:b, s:o}", "ok", 1, "time_ns", ns_json(f->clock.now));
	if (l->id)
		json_object_set_new(answer, "id", l->id);
	*l = (struct later){0};
	control_send(f, c, answer);
}

/* control_idle() - Nothing is left to happen: answer those who asked to be told */
void control_idle(struct fabric *f)
{
	SESSIONS_EACH(f, w)
		if (w->state == WORKER_RUNNING || (w->state == WORKER_WAITING && !w->program))
			return;
	for (struct control_conn *c = f->conns; c; c = c->next)
		answer_now(f, c, &c->quiesce);
}

/* Is a fault that was put in at or before @t still to go on? */
static bool to_go_on(struct fabric *f, ps_t t)
{
	if (!f->clock.started)
		return false; /* what is due goes on as it is put in; what was missed belongs to the next job */
	fault_forget_healed(f); /* time may stand still before them */
	struct heap *from;
	const struct event *first = event_next(f, &from);

	return first && (first->t < t || (first->t == t && event_kind(first) <= EV_FAULT));
}

/* control_carried_out() - Answer those who asked to be told when nobody has an answer left to give
 *
 * What somebody is told after the faults of a request have gone on is of no concern to it: under a fault that comes
 * again and again there would be no end of it.
 */
void control_carried_out(struct fabric *f)
{
	for (struct control_conn *c = f->conns; c; c = c->next) {
		struct later *l = &c->carried_out;
		if (!l->asked)
			continue;
		if (!l->told && !to_go_on(f, l->since)) {
			l->told = true;
			l->last_event = f->last_port_event;
		}
		if (l->told && !clock_waits_up_to(f, l->last_event))
			answer_now(f, c, l);
	}
}

/* control_hear_ends() - A controller that an agent has killed is gone before time goes on, not when its end is read */
void control_hear_ends(struct fabric *f)
{
	for (struct control_conn *c = f->conns; c; c = c->next) {
		struct pollfd its = {.fd = c->fd};
		bool over = !strcmp(c->acts, "controller") && poll(&its, 1, 0) > 0; /* asked for nothing, it tells of the end alone */
		while (over && !c->closing)
			control_readable(f, c);
	}
}

/* The client that was to start the ranks has gone: those that have not connected are waited for no more */
static void nobody_comes(struct fabric *f)
{
	for (uint32_t i = 0; i < f->nic_count; i++)
		if (f->workers[i].state == WORKER_ABSENT)
			f->workers[i].expected = false;
	clock_workers_changed(f);
}

/* control_sweep() - Let go of connections that are over; never in the middle of handling one */
void control_sweep(struct fabric *f)
{
	for (struct control_conn **at = &f->conns; *at;) {
		struct control_conn *c = *at;
		if (c->closing) {
			*at = c->next;
			if (c->holds)
				clock_unanswered(f, c, "its connection is closed");
			if (c->starts)
				nobody_comes(f);
			if (!strcmp(c->acts, "controller"))
				log_note(f, REPORT_NOTE, json_pack("{s:s, s:s, s:s}", "who", "controller", "level", "error",
								   "text", "connection lost"));
			conn_free(c);
		} else {
			at = &c->next;
		}
	}
}

void control_close(struct fabric *f)
{
	while (f->conns) {
		struct control_conn *c = f->conns;
		f->conns = c->next;
		conn_free(c);
	}
	free(f->clock.holds);
	parts_close(f);
	log_close(f);
	if (f->control_fd >= 0)
		close(f->control_fd);
}

const struct listener control_listener = {
	.event = control_event,
	.note = log_note,
	.ask = control_ask,
	.settle = control_settle,
	.acts = control_acts,
	.waits = clock_waits_for,
	.pause = sample_pause,
};
