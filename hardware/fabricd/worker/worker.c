/* Workers: sessions, their own clocks, waiting and waking
 *
 * Theory of Operation
 *
 * Each rank has a socket of its own, so that a worker is who its socket says.
 * A worker is either RUNNING (it computes; the clock may pass it only by the
 * time that a post of its needs to act, loop.c) or WAITING.  It has its own
 * time `now`: waking sets it, posts and SPEND move it.
 *
 * What happens to it is a record with a time, kept in the order of time.  A
 * wait ends when the n-th record is due or its limit is reached, as an event
 * that runs after all others of that time: so which records a worker sees
 * depends on emulated time only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/close_later.h"
#include "base/copies.h"
#include "base/patience.h"
#include "base/units.h"
#include "base/wall.h"
#include "engine/clock.h"
#include "engine/event.h"
#include "engine/fabric.h"
#include "engine/report.h"
#include "engine/watch.h"
#include "nic/nic.h"
#include "records/foreseen.h"
#include "records/records.h"
#include "transport/qp.h"
#include "worker/services.h"
#include "worker/worker.h"

#define PACKET_RECORDS 1024
#define RECORD_BYTES 40 /* without what stands behind it */
#define ANSWERED 0x8000u /* of a record's kind: what it says to that has been said (records/foreseen.c) */

static const char *const state_names[] = {"absent", "running", "waiting", "done", "lost"};

const char *worker_state_name(enum worker_state s)
{
	return state_names[s];
}

/* workers_open() - Listen on @dir/<rank>/sock for every rank */
bool workers_open(struct fabric *f, const char *dir)
{
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct worker *w = &f->workers[i];
		struct sockaddr_un at = {.sun_family = AF_UNIX};
		char folder[sizeof at.sun_path - 8];

		int n = snprintf(folder, sizeof folder, "%s/%u", dir, w->rank);
		if (n < 0 || (size_t)n >= sizeof folder)
			return config_fail(f, "%s: path too long for a unix socket", dir);
		if (mkdir(folder, 0755) && errno != EEXIST)
			return config_fail(f, "%s: %s", folder, strerror(errno));
		snprintf(at.sun_path, sizeof at.sun_path, "%s/sock", folder);
		unlink(at.sun_path);
		w->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (w->listen_fd < 0 || bind(w->listen_fd, (struct sockaddr *)&at, sizeof at) || listen(w->listen_fd, 4))
			return config_fail(f, "%s: %s", at.sun_path, strerror(errno));
		if (!watch_add(f, w->listen_fd, WATCH_WORKER_LISTEN, w))
			return false;
	}
	return true;
}

/* reply_head() - How every reply begins; the rest follows at what is returned */
uint8_t *reply_head(uint8_t *to, enum reply kind, uint32_t bytes)
{
	return put_le32(put_le16(put_le16(to, (uint16_t)kind), 0), bytes);
}

/* worker_send() - Say something to a worker, who may look at all memory then */
void worker_send(struct fabric *f, struct worker *w, const void *data, size_t len)
{
	if (w->fd < 0)
		return;
	copies_settle();
	ssize_t n;
	do
		n = send(w->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		worker_end(f, w, WORKER_LOST, errno == EAGAIN ? "does not read its answers" : strerror(errno));
}

/* worker_accept() - A worker connects, or a program: if the rank has a session already it can only be that
 *
 * A socket's queue may hold descriptors already, so even a refused one is closed elsewhere.
 */
void worker_accept(struct fabric *f, struct worker *w)
{
	bool taken = w->fd >= 0 || w->state != WORKER_ABSENT;

	if (taken && close_later_full()) { /* this is hostile: the rank accepts no session any more */
		watch_remove(f, w->listen_fd);
		shutdown(w->listen_fd, SHUT_RDWR);
		close_later(w->listen_fd);
		w->listen_fd = -1;
		return;
	}
	struct worker *program = taken ? program_new(f, w) : NULL;
	bool refused = taken && !program;
	int fd = accept4(w->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	host_listens(f, w);
	w = program ? program : w;
	if (fd < 0) {
		if (program)
			program_over(f, program);
		return;
	}
	if (refused) {
		static const char text[] = "rank has 256 programs already";
		uint8_t reply[REPLY_HEAD_BYTES + sizeof text - 1];
		reply_head(reply, REPLY_ERROR, sizeof reply);
		memcpy(reply + REPLY_HEAD_BYTES, text, sizeof text - 1);
		send(fd, reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
		close_later(fd);
		return;
	}
	w->fd = fd;
	patience_of(&w->patience, fd);
	if (!watch_add(f, fd, WATCH_WORKER, w)) {
		close_later(fd);
		w->fd = -1;
	}
}

/* worker_end() - A session is over
 * @how:	WORKER_DONE: its queue pairs and memory stay, peers may still need its acknowledgements.
 *		WORKER_LOST: everything of its goes, as with a process that dies
 * @why:	Reason, for WORKER_LOST
 */
void worker_end(struct fabric *f, struct worker *w, enum worker_state how, const char *why)
{
	if (w->fd < 0)
		return;
	if (how == WORKER_LOST && w->state != WORKER_DONE) {
		uint8_t reply[REPLY_HEAD_BYTES + sizeof w->reason];
		snprintf(w->reason, sizeof w->reason, "%s", why);
		size_t n = strlen(w->reason);
		reply_head(reply, REPLY_ERROR, (uint32_t)(REPLY_HEAD_BYTES + n));
		memcpy(reply + REPLY_HEAD_BYTES, w->reason, n);
		send(w->fd, reply, REPLY_HEAD_BYTES + n, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	foreseen_free(&w->foresight);
	watch_remove(f, w->fd);
	shutdown(w->fd, SHUT_RDWR); /* the worker hears at once */
	close_later(w->fd);
	w->fd = -1;
	if (w->state == WORKER_DONE)
		return;
	bool greeted = w->state != WORKER_ABSENT;
	w->state = how;
	clock_worker_changed(f, w);
	if (w->program) {
		program_ends(f, w, greeted);
		return;
	}
	if (how == WORKER_DONE) {
		f->services->ended(f, w);
		report_event(f, REPORT_WORKER_DONE, json_pack("{s:i}", "rank", (int)w->rank));
		return;
	}
	for (uint32_t i = 0; i < w->nic->qp_count; i++) {
		struct qp *q = w->nic->qps[i];
		if (q->owner->ops->generated)
			continue; /* the NIC's own */
		q->state = QP_ERROR;
		lender_recall(f, &q->lent, UINT64_MAX);
	}
	f->services->ended(f, w);
	regions_unmap(w);
	report_event(f, REPORT_WORKER_LOST,
		      json_pack("{s:i, s:s, s:b}", "rank", (int)w->rank, "reason", w->reason, "greeted", greeted));
}

void workers_close(struct fabric *f)
{
	programs_over(f);
	programs_sweep(f);
	for (uint32_t i = 0; i < f->nic_count; i++) {
		struct worker *w = &f->workers[i];
		if (w->fd >= 0)
			close_later(w->fd);
		if (w->listen_fd >= 0)
			close_later(w->listen_fd);
		regions_unmap(w);
		foreseen_free(&w->foresight);
		records_free(&w->records);
		free(w->compute_free);
		free(w->places);
	}
}

/* Find out when the wait ends, as far as is known now, and have an event for it; if that time is over already it is the next
 * of all, and the clock goes no further than it may act
 */
static void plan_wake(struct fabric *f, struct worker *w)
{
	ps_t t = PS_NEVER;

	if (w->records.count >= w->wait_records)
		t = w->wait_records ? records_nth(&w->records, w->wait_records - 1)->t : w->now;
	if (w->wait_until < t)
		t = w->wait_until;
	if (w->wait_written && w->written < t)
		t = w->written;
	if (t < w->now)
		t = w->now;
	if (t == PS_NEVER || t == w->wake_at)
		return;
	w->wake_at = t;
	event_add(f, t, EV_WAKE, w->nic->n.index, 0, w->program & 0xffff, ++w->wake_number, w, 0);
}

/* worker_record() - Something has happened, or will at r->t */
void worker_record(struct fabric *f, struct worker *w, const struct record *r)
{
	if (w->fd < 0)
		return;
	if (w->records.count == (w->program ? PROGRAM_RECORDS_MAX : RECORDS_MAX)) {
		worker_end(f, w, WORKER_LOST, w->program ? "more than 1048576 records not fetched" : "more than 65536 records not fetched");
		return;
	}
	records_add(&w->records, r);
	if (w->state == WORKER_WAITING)
		plan_wake(f, w);
}

/* worker_written() - A peer has written to its memory, which it sees at that time */
void worker_written(struct fabric *f, struct worker *w, ps_t t)
{
	w->written = t < w->written ? t : w->written;
	w->written_last = t;
	if (w->state == WORKER_WAITING && w->wait_written)
		plan_wake(f, w);
}

/* worker_wait() - Until so many records are due (0: just look), that time, or, if @written, what a peer has written is there */
void worker_wait(struct fabric *f, struct worker *w, uint64_t records, ps_t until, bool written)
{
	w->wait_written = written;
	w->wait_foreseen = false;
	w->state = WORKER_WAITING;
	w->wait_records = records;
	w->wait_until = until;
	w->wake_at = PS_NEVER;
	w->hosts = false;
	f->stalled_reported = false;
	plan_wake(f, w);
}

/* Does the reason of its group stand behind the record?  (The group may be gone by now.) */
static bool group_record(const struct record *r)
{
	return r->kind == REC_GROUPED || r->kind == REC_GROUP_FAILED || r->kind == REC_GROUP_NOTED;
}

static uint8_t *put_record(uint8_t *p, const struct record *r, uint32_t more_kind, size_t extra, uint64_t bytes)
{
	p = put_le16(put_le16(p, (uint16_t)(r->kind | more_kind)), (uint16_t)(RECORD_BYTES + extra));
	p = put_le64(put_le32(p, r->status), r->wr_id);
	p = put_le64(p, (uint64_t)r->t);
	return put_le64(put_le32(put_le32(p, r->qp), r->imm), bytes);
}

static void send_records(struct fabric *f, struct worker *w)
{
	uint8_t packet[MESSAGE_MAX];
	uint8_t *p = packet + REPLY_RECORDS_BYTES;
	size_t due = records_due(&w->records, w->now);
	const struct record *before;
	uint32_t count = 0, answered = foreseen_answered(w->foresight, &before);

	for (uint32_t i = 0; i < answered; i++)
		p = put_record(p, &before[i], ANSWERED, 0, before[i].bytes);
	while (count < due && count < PACKET_RECORDS) {
		const struct record *r = records_nth(&w->records, count);
		const struct qp *q = r->kind == REC_CONNECTED ? qp_find(w->nic, r->qp) : NULL;
		const char *reason = group_record(r) ? f->services->reason(w->nic, r->qp) : "";
		size_t private = q ? q->peer_qp->private_bytes : strlen(reason), extra = (private + 7u) & ~7u;
		if ((size_t)(packet + sizeof packet - p) < RECORD_BYTES + extra)
			break;
		uint8_t *end = p + RECORD_BYTES + extra;
		foreseen_told(w->foresight, r);
		p = put_record(p, r, 0, extra, private ? private : group_record(r) ? 0 : r->bytes);
		memset(p, 0, extra);
		if (private)
			memcpy(p, q ? (const char *)q->peer_qp->private_data : reason, private);
		p = end;
		count++;
	}
	records_drop(&w->records, count);
	uint8_t *head = reply_head(packet, REPLY_RECORDS, (uint32_t)(p - packet));
	head = put_le32(put_le32(put_le64(head, (uint64_t)w->now), answered + count), (uint32_t)(due - count));
	put_le64(put_le64(head, (uint64_t)w->host), nic_sent_bytes(w->nic, w->now));
	worker_send(f, w, packet, (size_t)(p - packet));
}

/* worker_wakes() - An EV_WAKE has come: does it count, or has the wait been planned anew since? */
bool worker_wakes(const struct worker *w, uint64_t number)
{
	return w->state == WORKER_WAITING && number == w->wake_number;
}

/* worker_thaw() - A worker is frozen no longer: what it should have been woken for meanwhile wakes it now */
void worker_thaw(struct fabric *f, struct worker *w)
{
	if (!w->asleep)
		return;
	w->asleep = false;
	w->wake_at = f->clock.now;
	event_add(f, f->clock.now, EV_WAKE, w->nic->n.index, 0, w->program & 0xffff, ++w->wake_number, w, 0);
}

/* worker_wake() - The wait is over
 *
 * Who is interrupted may be further than the real clock, by what it has posted: what it says next is later than that.
 */
void worker_wake(struct fabric *f, struct worker *w)
{
	ps_t at = f->clock.mode == CLOCK_REAL ? f->clock.now : w->wake_at;

	if (w->nic->p.frozen) {
		w->asleep = true;
		return;
	}
	w->now = at > w->now ? at : w->now;
	if (w->written <= w->now)
		w->written = w->written_last > w->now ? w->written_last : PS_NEVER;
	if (worker_answers(f, w))
		return;
	w->state = WORKER_RUNNING;
	patience_begin(&w->patience);
	w->hung = false;
	clock_worker_changed(f, w);
	send_records(f, w);
}

/* worker_hears() - Does it wait for what others say at once, by a CONNECT or SYNC? */
bool worker_hears(const struct worker *w)
{
	return w->state == WORKER_WAITING && (w->syncing || w->connecting);
}

/* worker_must_wait() - May a running worker still cause a record that this one sees when it wakes now?
 *
 * Only by a CONNECT or SYNC, which act at once.
 */
bool worker_must_wait(const struct fabric *f, const struct worker *w)
{
	return worker_hears(w) && f->clock.workers_now <= w->wake_at;
}
