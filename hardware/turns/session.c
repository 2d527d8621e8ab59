/* A session's commands and records, while Python waits
 *
 * Python's commands stand in `out` already when it calls, and it takes back what is left there: so all of them keep their
 * order.
 */
#include "turns.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define PROGRESS_NS 250000000 /* a worker that says nothing while it runs tries fabricd's patience */

/* By which Python sees that it was made for what we are */
const uint32_t turns_layout[] = {
	sizeof(struct turns), sizeof(struct execution), sizeof(struct plan), sizeof(struct step), sizeof(struct place),
	sizeof(struct lane_plan), sizeof(struct line_plan), sizeof(struct lane), sizeof(struct line), sizeof(struct receives),
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* Return: whether it has gone out.  If not, what fabricd has said last is there to be read */
static bool sent(struct turns *t, const void *data, size_t bytes)
{
	ssize_t n;

	do
		n = send(t->fd, data, bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	t->spoke_ns = now_ns();
	return n == (ssize_t)bytes;
}

static bool flush(struct turns *t)
{
	uint32_t bytes = t->said;

	t->said = 0;
	if (!bytes)
		return true;
	if (t->fd >= 0)
		return sent(t, t->out, bytes);
	t->asked.say(t->out, bytes);
	return true;
}

/* put_command() - Return: its bytes */
size_t put_command(uint8_t *to, uint16_t op, const void *body, size_t bytes)
{
	struct head head = {.op = op, .length = (uint16_t)(sizeof head + bytes)};

	memcpy(to, &head, sizeof head);
	if (bytes)
		memcpy(to + sizeof head, body, bytes);
	return head.length;
}

/* say() - A command, which goes out with the next wait, if it has not been said beforehand */
void say(struct turns *t, uint16_t op, const void *body, size_t bytes)
{
	if (t->quiet)
		return;
	if (t->said + sizeof(struct head) + bytes > PACKET_MOST)
		flush(t); /* if that fails, so does the next wait */
	t->said += (uint32_t)put_command(t->out + t->said, op, body, bytes);
}

/* say_progress() - Now and then a sign of life */
void say_progress(struct turns *t)
{
	static const struct head progress = {.op = PROGRESS, .length = sizeof progress};

	if (t->fd < 0)
		t->asked.alive();
	else if (now_ns() - t->spoke_ns >= PROGRESS_NS)
		sent(t, &progress, sizeof progress);
}

/* owner() - Whose a record is.  Return: NULL if it is no execution's */
const struct entry *owner(const struct turns *t, const struct wire_record *r)
{
	uint64_t number = r->kind == REC_SENT ? r->wr_id >> NUMBER_BITS : r->imm >> NUMBER_BITS;

	if (r->kind == REC_COMPUTED)
		return table_find(&t->computations, r->wr_id);
	if ((r->kind != REC_SENT && r->kind != REC_RECEIVED_IMM) || number > UINT32_MAX)
		return NULL;
	return table_find(&t->messages, message_key(r->qp, (uint32_t)number));
}

/* hand_out() - Hand a record to its owner.  Return: TURNED_ON, TURNED_ENDED or TURNED_ODD */
int hand_out(struct turns *t, const struct entry *e, const struct wire_record *r)
{
	struct execution *x = e->execution;
	uint32_t index = e->index, what = e->what;
	t->taken = x->number;
	if (r->kind == REC_COMPUTED) {
		table_take(&t->computations, r->wr_id);
		lanes_computed(t, x, what, index);
	} else if (!lanes_take(t, x, index, r->kind == REC_SENT, r->wr_id, r->imm)) {
		return TURNED_ODD;
	}
	if (!x->running || !turns_done(x))
		return TURNED_ON;
	x->running = false;
	t->ended = x->number;
	t->ended_ps = r->t;
	return TURNED_ENDED;
}

/* A record to which nothing has been said yet.  Return: likewise, or NOT_OURS */
static int told(struct turns *t, const struct wire_record *r)
{
	const struct entry *e = owner(t, r);

	t->odd_kind = r->kind;
	t->odd_imm = r->imm;
	if (!e)
		return NOT_OURS;
	ahead_told(e, r);
	return hand_out(t, e, r);
}

static int hand_out_all(struct turns *t)
{
	while (t->at < t->end) {
		struct wire_record r;
		memcpy(&r, t->in + t->at, sizeof r);
		t->at += sizeof r;
		int how = told(t, &r);
		if (how != TURNED_ON)
			return how;
	}
	return TURNED_ON;
}

/* turns_take() - A record that Python has been told of.  Return: NOT_OURS, or how it has turned out */
int turns_take(struct turns *t, uint32_t kind, uint64_t wr_id, uint64_t time_ps, uint32_t qp, uint32_t imm)
{
	return told(t, &(struct wire_record){.kind = (uint16_t)kind, .wr_id = wr_id, .t = time_ps, .qp = qp, .imm = imm});
}

/* Are they records that have gone well, each of a schedule that is under way?  Then they are what is handed out next */
static bool all_ours(struct turns *t, size_t bytes)
{
	struct wire_records head;
	struct head kind;

	if (bytes < RECORDS_HEAD)
		return false;
	memcpy(&kind, t->in, sizeof kind);
	memcpy(&head, t->in + PACKET_HEAD, sizeof head);
	if (kind.op != REPLY_RECORDS || kind.length || kind.zero != bytes || bytes - RECORDS_HEAD != (uint64_t)head.count * sizeof(struct wire_record))
		return false;
	for (size_t at = RECORDS_HEAD; at < bytes; at += sizeof(struct wire_record)) {
		struct wire_record r;
		memcpy(&r, t->in + at, sizeof r);
		if (r.length != sizeof r || r.status || !owner(t, &r))
			return false;
	}
	t->now = head.now;
	t->host = head.host;
	t->sent = head.sent;
	t->at = RECORDS_HEAD;
	t->end = (uint32_t)bytes;
	return true;
}

/* Say that we wait, unless that is said already.  Return: whether it could be said */
static bool ask(struct turns *t, uint64_t until)
{
	if (t->waits)
		return true;
	ahead_look(t);
	say(t, WAIT, &(struct wire_wait){.records = 1, .flags = t->foresees ? WAIT_FORESEEN : 0, .until = until}, sizeof(struct wire_wait));
	t->waits = true;
	return flush(t);
}

/* Return: whether there is an answer to be read; if not, a signal has come, or may have come just before */
static bool answered(const struct turns *t)
{
	struct pollfd p = {.fd = t->fd, .events = POLLIN};

	return t->patience_ms < 0 || poll(&p, 1, t->patience_ms) > 0;
}

/* turns_go_on() - Hand out what is left, then wait, hand out, and so on, until there is something for Python
 * @until:	Emulated time in ps at which Python wants to be asked, or UINT64_MAX
 * @for_ns:	Wall time after which it wants to
 */
int turns_go_on(struct turns *t, uint64_t until, int64_t for_ns)
{
	int64_t stop = now_ns() + for_ns;
	int how = hand_out_all(t);

	while (how == TURNED_ON && (until == UINT64_MAX || t->now < until)) {
		if (now_ns() >= stop)
			return TURNED_LOOK;
		if (!ask(t, until))
			return TURNED_CLOSED;
		if (!answered(t))
			return TURNED_LOOK;
		ssize_t n = recv(t->fd, t->in, t->in_bytes, 0);
		if (n < 0 && errno == EINTR)
			return TURNED_LOOK;
		t->waits = false;
		if (n < 0)
			return TURNED_CLOSED;
		size_t bytes = (size_t)n;
		if (!ahead_answered(t, &bytes))
			return TURNED_ODD;
		t->got = (uint32_t)bytes;
		if (!all_ours(t, bytes))
			return TURNED_PACKET;
		if (t->wake_ps && t->at < t->end)
			say(t, SPEND, &t->wake_ps, sizeof t->wake_ps);
		how = hand_out_all(t);
	}
	return how == TURNED_ON ? TURNED_LIMIT : how;
}
