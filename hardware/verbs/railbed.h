/* What the files of this library share
 *
 * libibverbs.so.1 for programs in a rank's container: its one device is the rank's emulated NIC, reached by the rank's
 * worker socket (docs/fabricd-protocol.md).  A process has one session, which its first use of the NIC opens.  Whoever
 * changes anything holds its lock.
 */
#ifndef RAILBED_H
#define RAILBED_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "lock.h"

struct wire_record;

#define PS_PER_NS 1000ull
#define NEVER UINT64_MAX

#define PORT 1
#define SGE_MAX 16
#define INLINE_MAX 1024
#define WR_MAX 16384
#define CQE_MAX (1 << 22)
#define QP_MAX 4096
#define SRQ_MAX 1024
#define DEVICE_MEMORY_MAX (128u << 10)
#define READS_MAX 16 /* and atomics of a queue pair under way */

/* --- session.c, wait.c: what is said to fabricd, and what it says --- */
struct session {
	int fd; /* -1: not opened yet, or lost */
	bool lost, real, asked; /* asked: something was said since the clock was heard last */
	uint32_t rank, ranks, mtu;
	uint64_t pcie; /* ps, one way */
	uint64_t now, spend; /* ps: the process's clock, and what is to be added to it with the next command */
	unsigned forks; /* so many have led to this process: what was made before the last is of no use here */
	uint32_t posted; /* since it heard of anything */
	uint64_t waits, said, looks; /* looks: at the clock, since anything else was done */
	struct lock lock;
	struct bell changed; /* nobody waits for records any more, or */
	bool moved;	     /* whoever wanted to say something has: it rings when the lock is free */
	bool waiting;	     /* a thread does, without the lock */
	bool resting;	     /* or is about to, as soon as the others wait, too */
	bool interrupted;    /* because another waits, too, for less: */
	uint32_t records;    /* for so many, */
	uint64_t until;	     /* or until then */
	uint32_t flags;
	bool inside;	/* or for something at all: else all are in calls of the kernel */
	uint64_t alarm; /* no wait goes beyond it */
	uint32_t open;		/* regions that peers may write to */
	unsigned wanted;	/* so many others have something to say */
	size_t out_len, last; /* where the last command begins */
	_Alignas(8) uint8_t out[65536], in[1 << 16];
};
extern struct session session;

void session_lock(void);
void session_unlock(void);
bool session_open(void);
void *session_command(uint16_t op, uint16_t body);
void session_begin(void);
void session_now(void);
void session_flush(void);
void session_interrupt(void);
long session_receive(void);
bool session_heard(long n, uint16_t kind);
extern const struct railbed_watch *session_watch;
bool session_exchange(int fd, uint16_t kind);
uint32_t session_wait(uint32_t records, uint64_t until);
void session_outside(uint64_t until);
void session_signals(void);
bool session_signalled(void);
bool session_pipe(int ends[2]);
long session_read(int fd, void *to, size_t n);
void session_masked(uint64_t until, const sigset_t *mask);
void session_room(void);
void session_fail(const char *what, const char *why);
void session_poll(unsigned empties);
bool session_polls(void);
extern __thread unsigned session_depth; /* of this thread's lock: more than 1 in a handler of signals */
uint64_t session_slice(unsigned empties);
void session_region(uint64_t start, uint64_t end, bool there);
void session_pause(void);

/* --- place.c: what stands about the fabric in the container --- */
struct place {
	uint32_t ranks, rank, mtu;
	unsigned dilation;
	bool real;
	struct nic_place {
		char name[32];
		uint32_t address; /* IPv4, network order */
		uint64_t rate_bps;
	} *nics;
};
const struct place *place(void);
bool place_rank_of(const union ibv_gid *gid, uint32_t *rank);
void place_gid(uint32_t rank, union ibv_gid *gid);

/* --- memory.c, demand.c, device_memory.c, window.c --- */
uint32_t memory_enroll(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, unsigned access);
void memory_forget(uint32_t key, unsigned forks);
uint32_t memory_key(uint16_t op, const void *body, uint16_t bytes, int fd);
struct ibv_mr *memory_region(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access, uint32_t key);
void demand_look(void);
void demand_child(void);
int demand_added(const struct ibv_pd *pd, uint64_t at, size_t length, uint64_t iova, uint32_t key, unsigned access);
void demand_removed(uint32_t key);
const struct ibv_sge *demand_named(const struct ibv_sge *list, int count, struct ibv_sge to[SGE_MAX]);
int demand_advise(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t count);
struct ibv_dm *dm_alloc(struct ibv_context *c, struct ibv_alloc_dm_attr *a);
int dm_free(struct ibv_dm *dm);
struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access);
struct ibv_mw *window_alloc(struct ibv_pd *pd, enum ibv_mw_type type);
int window_dealloc(struct ibv_mw *mw);
int window_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b);
void dm_let_go(const struct ibv_mr *mr);

/* demand_is_all() - Is that a region of all memory? */
static inline bool demand_is_all(uint64_t at, size_t length)
{
	return !at && length == SIZE_MAX;
}

/* --- device.c, context.c --- */
void device_operations(struct verbs_context *v);
void pd_use(struct ibv_pd *pd, int more);
struct ibv_pd *pd_parent(struct ibv_context *c, struct ibv_parent_domain_init_attr *a);
struct ibv_td *td_alloc(struct ibv_context *c, struct ibv_td_init_attr *a);
int td_dealloc(struct ibv_td *td);
void async_add(struct ibv_context *c, const struct ibv_async_event *e);

/* --- completion.c --- */
struct cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct ibv_wc *ring;
	uint32_t room, head, tail, empties, users;
	unsigned forks;
	bool armed, solicited_only, overrun;
	struct ibv_wc current; /* of extended polling */
	uint64_t serial;       /* as its channel names it */
	uint32_t events;       /* that were handed out */
	struct cq *next;
};
int cq_poll(struct ibv_cq *c, int n, struct ibv_wc *wc);
int cq_notify(struct ibv_cq *c, int solicited_only);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
void cq_add(struct ibv_cq *c, const struct ibv_wc *wc, bool solicited);
void cq_forget(struct ibv_cq *c, uint32_t qp_num);

/* --- listener.c --- */
void listener_armed(bool yes);
void listener_child(void);

/* --- address.c --- */
#define HEADER_IPV4 0xa /* as the service level of a received datagram: IPv4 and UDP are before it (mlx5 says so; UCX asks) */
struct ah {
	struct ibv_ah ah;
	uint32_t address; /* IPv4 */
	uint8_t traffic_class, sl;
};

/* --- shared.c --- */
struct shared {
	struct ibv_srq srq;
	struct ibv_srq_attr attr;
	unsigned forks;
	uint32_t number, users, events, free; /* free: of `entry` the first that is, or NOTHING */
	struct shared_entry {
		uint64_t wr_id;
		uint32_t next;
	} *entry;
	struct shared *next;
};
#define NOTHING UINT32_MAX
uint64_t shared_ended(struct ibv_srq *srq, uint64_t entry);
void shared_low(uint32_t number);
bool shared_told(const struct ibv_srq *srq);

/* --- queue_pair.c, post.c, extended.c --- */
struct send_entry {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	bool signaled;
};
struct qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	uint32_t number; /* whatever its program makes of qp.qp_num */
	unsigned forks;
	bool extended;
	bool signal_all;
	bool draining, drain_told; /* its send queue is being drained; and an event is to say when it is */
	uint32_t events; /* asynchronous ones that its program has taken */
	struct send_entry *sq;
	uint64_t *rq;
	uint64_t sq_head, sq_tail, rq_head, rq_tail;
	struct batch *batch; /* what ibv_wr_* has put together */
	struct qp *next, *beside;
};
extern struct qp *qps;
struct ibv_qp *qp_create_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
struct qp *qp_of(uint32_t number);
void qp_lost(struct qp *q);
void qp_event(uint32_t number, uint32_t type);
bool qp_told(const struct ibv_qp *qp);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void post_sent(uint64_t wr_id, uint32_t status, uint32_t number, uint64_t bytes);
void post_received(const struct wire_record *r);
int post_shared_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
bool extended_init(struct qp *q, uint64_t ops);
void extended_free(struct qp *q);

#endif
