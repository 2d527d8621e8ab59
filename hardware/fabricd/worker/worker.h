/* Workers: sessions of the ranks' processes, their memory, their own clocks
 *
 * Everything that a worker says comes from a process that is not trusted: message.c takes packets apart by the table of
 * commands (commands.def), session.c, posts.c and time.c carry them out.  What has happened to a worker is a record
 * (records.h); it waits for so many of them, or until a time (worker.c).  How far workers that run let the clock go is
 * in clock.c.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/patience.h"
#include "nic/nic.h"
#include "connection/attributes.h"
#include "records/records.h"
#include "transport/qp.h"
#include "worker/region.h"

struct offload_wr;

enum worker_state { WORKER_ABSENT, WORKER_RUNNING, WORKER_WAITING, WORKER_DONE, WORKER_LOST };

#define WORKER_PROTOCOL 6

/* What workers are told */
enum reply {
#define REPLY(number, name, bytes, more, body) REPLY_##name = number,
#include "worker/replies.def"
#undef REPLY
};

#define REPLY_HEAD_BYTES 8

/* With their heads; what may be longer follows */
enum reply_bytes {
#define REPLY(number, name, bytes, more, body) REPLY_##name##_BYTES = REPLY_HEAD_BYTES + bytes,
#include "worker/replies.def"
#undef REPLY
};

#define NICS_MAX 8192
#define WORKER_REGIONS_MAX 256
#define PROGRAM_REGIONS_MAX 16384
#define PROGRAMS_REGIONS_MAX 32768 /* of all programs: each is a mapping, of which a process may have 65530 (vm.max_map_count) */
#define PROGRAMS_MAX 256 /* of a rank at a time */
#define PLACES_MAX 2048
#define REGION_BYTES_MAX (64ull << 30)
#define POSTS_MAX 65536
#define SYNCS_MAX 256
#define SYNC_BITS 10
#define STREAMS_MAX 256
#define NO_STREAM UINT32_MAX /* of a computation that waits for no other */
#define RECORDS_MAX 65536
#define PROGRAM_RECORDS_MAX (1u << 20) /* each ends something that it has posted */
#define MESSAGE_MAX 65536

/* What programs of one place have had so far, one after another */
struct place {
	uint32_t sessions, qps;
};

/* A session: of a rank's worker in a job, or of a program beside it (program.c) */
struct worker {
	struct qp_owner owner; /* of its queue pairs: first (worker_of) */
	struct fabric *f;
	struct nic *nic;
	uint32_t rank;
	uint32_t program; /* its number, from 1; 0: the rank's worker */
	struct worker *next; /* the next program of its rank */
	uint32_t programs; /* of a rank's worker: so many there have been */
	uint32_t place; /* of a program that has one (program.c), from 1 */
	struct place *places; /* of a rank's worker: those of its programs, or NULL */
	enum worker_state state;
	bool expected; /* named by `start`: the clock waits for it */
	int listen_fd, fd;
	ps_t now; /* its own clock: it is that far */
	bool hosts; /* it waits for programs that it may have started, */
	uint32_t started; /* and so many of them have not ended (hosting.c) */
	ps_t host; /* of that: what posts and SPEND took, not waiting */
	uint64_t wait_records;
	ps_t wait_until;
	bool wait_foreseen; /* what it has said beforehand is its answer */
	uint64_t wake_number; /* EV_WAKE with another number is stale */
	ps_t wake_at;
	struct records records; /* not fetched yet */
	struct foresight *foresight; /* what it has said beforehand (records/foreseen.c); NULL: nothing */
	struct regions regions;
	struct shared *shared; /* its shared receive queues */
	uint32_t shared_numbers; /* so many there have been */
	bool wait_written; /* or until what a peer has written is there: */
	ps_t written, written_last; /* when that is or was, of what it has not woken up for: the first, and the last */
	ps_t *compute_free; /* of each stream, when it is through; NULL: nothing was computed yet */
	uint64_t posts;
	uint32_t posts_under_way; /* that have not reached the NIC yet */
	uint32_t syncing, connecting; /* not yet answered */
	struct patience patience; /* with it while it runs */
	bool hung; /* and reported as such */
	bool asleep; /* should have been woken, but is frozen */
	char reason[256];
};

extern const struct qp_owner_ops worker_qp_ops, program_qp_ops; /* (qps.c) */

/* What reaches the NIC by its doorbell */
struct post {
	struct worker *w;
	uint32_t qp; /* or group, key, shared receive queue */
	enum { POST_KIND_SEND, POST_KIND_RECV, POST_KIND_OFFLOAD, POST_KIND_MODIFY, POST_KIND_DESTROY, POST_KIND_DEREGISTER, POST_KIND_REGION, POST_KIND_PAGES, POST_KIND_SHARED_RECV, POST_KIND_SHARED_LIMIT, POST_KIND_SHARED_DESTROY, POST_KIND_END } kind;
	union {
		struct send_wr send;
		struct recv_wr receive;
		struct offload_wr *offload;
		struct qp_wanted wanted;
		uint32_t limit;
		struct {
			uint32_t access, domain;
		} region;
		struct {
			uint64_t address, length;
			bool there;
		} pages;
	};
};

struct sync {
	struct sync *next;
	uint32_t tag, participants, count;
	ps_t t;
	uint32_t *ranks;
	uint8_t *come; /* a bit for each rank */
};

bool workers_open(struct fabric *f, const char *dir);
void worker_accept(struct fabric *f, struct worker *w);
void worker_readable(struct fabric *f, struct worker *w);
void worker_end(struct fabric *f, struct worker *w, enum worker_state how, const char *why);
void worker_record(struct fabric *f, struct worker *w, const struct record *r);
bool worker_wakes(const struct worker *w, uint64_t number);
void worker_wake(struct fabric *f, struct worker *w);
void worker_thaw(struct fabric *f, struct worker *w);
void worker_awaits(struct fabric *f, struct worker *w, uint32_t programs, ps_t until);
bool worker_holds(const struct worker *w);
void worker_interrupt(struct fabric *f, struct worker *w);
ps_t program_time(const struct fabric *f, const struct worker *rank);
void host_listens(struct fabric *f, struct worker *rank);
void program_outside(struct worker *w);
void host_hears(struct fabric *f, const struct worker *program);
void worker_wait(struct fabric *f, struct worker *w, uint64_t records, ps_t until, bool written);
void worker_written(struct fabric *f, struct worker *w, ps_t t);
uint8_t *reply_head(uint8_t *to, enum reply kind, uint32_t bytes);
void worker_send(struct fabric *f, struct worker *w, const void *data, size_t len);
bool worker_hears(const struct worker *w);
bool worker_must_wait(const struct fabric *f, const struct worker *w);
void worker_look_after(struct fabric *f);
json_t *worker_waits_json(const struct fabric *f);
struct worker *session_next(const struct fabric *f, const struct worker *w);
void worker_doorbell_at(struct fabric *f, const struct post *what, ps_t t);
struct worker *program_new(struct fabric *f, struct worker *rank);
struct worker *program_begin(struct fabric *f, struct worker *rank);
void program_placed(struct fabric *f, struct worker *w, uint32_t place);
struct qp *program_qp(struct fabric *f, struct worker *w);
void program_interrupt(struct fabric *f, struct worker *w);
void program_ends(struct fabric *f, struct worker *w, bool greeted);
void program_over(struct fabric *f, struct worker *w);
void programs_over(struct fabric *f);
void programs_sweep(struct fabric *f);
struct nic *worker_nic(struct fabric *f, uint32_t ip);
void memory_deregister(struct fabric *f, struct worker *w, uint32_t key);
void memory_pages(struct fabric *f, struct worker *w, const struct post *p);
uint8_t *worker_memory(struct worker *w, uint32_t key, uint64_t offset, uint64_t length);
const char *worker_state_name(enum worker_state s);
bool worker_waits_for(const struct worker *w, char *text, size_t room);
void worker_message(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd);
const char *worker_says(struct fabric *f, struct worker *w, const uint8_t *data, size_t len);
bool worker_answers(struct fabric *f, struct worker *w);
void post_free(struct post *p);
void worker_doorbell(struct fabric *f, struct post *p);
void workers_close(struct fabric *f);

/* worker_of() - Whose a queue pair of a session is */
static inline struct worker *worker_of(const struct qp *q)
{
	return (struct worker *)q->owner;
}

/* All sessions: of each rank its worker, then its programs */
#define SESSIONS_EACH(f, w) for (struct worker *w = session_next(f, NULL); w; w = session_next(f, w))

/* worker_acts() - The earliest that what the worker says now can reach its NIC: the clock goes no further while it runs */
static inline ps_t worker_acts(const struct worker *w)
{
	if (w->program && w->regions.open)
		return w->now; /* it may look at what peers have written by now, and nothing else */
	return w->now + w->nic->p.post + w->nic->p.pcie_latency;
}

void clock_workers_changed(struct fabric *f);
void clock_worker_changed(struct fabric *f, const struct worker *w);

void worker_sync(struct fabric *f, struct worker *w, uint32_t tag, uint32_t participants);
struct sync **syncs_new(void);
void syncs_forget(struct fabric *f);

#endif
