/* NIC-side rings (DirectReduce): what their parts share
 *
 * The parts, as the paper names them: the GateKeeper (gate_keeper.c) reads ahead and
 * sends, the DataDirector (data_director.c) takes what comes in, the ComputeEnhancer
 * (compute_enhancer.c) adds.  ring.c makes rings, pass.c has their requests carried out.
 */
#ifndef OFFLOAD_RING_H
#define OFFLOAD_RING_H

#include "offload/offload.h"
#include "transport/qp.h"
#include "vector/element.h"

enum ring_arg { RING_MOST, RING_ELEMENT, RING_COMPRESSION, RING_OPTIMIZER };
enum ring_collective { RING_ALL_REDUCE, RING_REDUCE_SCATTER, RING_ALL_GATHER, RING_LOAD, RING_COLLECTIVES };
enum ring_optimizer { OPT_NONE, OPT_SGD, OPT_ADAM, OPTIMIZERS };

#define BFP_BLOCK 16 /* elements that share an exponent */
#define RING_REQUESTS_MAX 64
#define RING_PASS_PACKETS 256 /* of each chunk that go round in one pass, at most */

/* One pass round the ring, of a part of every chunk; a request is some of them */
struct ring_pass {
	struct ring_pass *next;
	struct offload_wr wr; /* of the request */
	uint64_t part;	      /* its first element in every chunk */
	bool last;	      /* of its request */
	bool admitted;	    /* its messages stand in the queue pair */
	uint32_t hops, reducing;
	uint64_t base;	    /* number of the first packet that it sends */
	uint64_t own;	    /* packets of the first message: of our own chunk */
	uint64_t sends, receives; /* packets in all */
	/* how far it is */
	uint32_t hop;	    /* that is being received, and the next packet of it */
	uint64_t packet;
	uint64_t received;  /* packets in all */
	uint64_t own_read;  /* packets of the first message asked for over PCIe */
	uint32_t add_hop;   /* hop and packet for which a local packet is read next */
	uint64_t add_packet;
	uint64_t own_ready, forwards_ready, worked;
	ps_t visible;	    /* when the last result is in memory */
	bool reported;	    /* to the worker */
};

/* Local packets that are being read over PCIe, or have been: when they are there */
struct ring_reads {
	struct ring_read {
		ps_t t;
		struct ring_pass *of;
	} *at;
	uint32_t room, head, tail;
	uint32_t ahead, most; /* not yet sent or added; so many of them are enough */
};

/* A packet that has come in: waits for the engine, or is in it */
struct ring_arrival {
	ps_t t; /* of arrival; then, when the engine is done with it */
	struct ring_pass *of;
	uint32_t elements;
	bool add, forward, result;
};

struct ring_member {
	struct qp_owner owner; /* of its queue pairs */
	struct fabric *f;
	struct nic *nic;
	struct member *member; /* NULL once the group is closed */
	struct qp *right, *left;
	uint32_t ranks, index;
	enum element element;
	bool compressed;
	enum ring_optimizer optimizer;
	uint32_t packet_elements, pass_packets;
	uint64_t most;
	/* the GateKeeper's buffer: what is to be sent, what is to be added to */
	struct ring_reads own, local;
	ps_t read_due; /* when to go on reading, or PS_NEVER */
	/* what is sent and not acknowledged: packet n is in slot n % slots */
	uint8_t *memory;
	uint32_t slots, slot_bytes;
	uint64_t reserved; /* of the NIC's memory */
	struct ring_arrival *arrival;
	uint32_t arrival_room, arrival_head, arrival_given, arrival_tail;
	/* results on their way to memory: bytes and request */
	struct ring_result {
		struct ring_pass *of;
		uint32_t bytes;
	} *result;
	uint32_t result_room, result_head, result_tail;
	ps_t write_due; /* when to go on writing, or PS_NEVER */
	struct ring_pass *passes, *own_of, *local_of, *receiving, *sending; /* oldest, and how far each part is */
	uint32_t requests;
	ps_t visible; /* results of the passes so far of the oldest request */
	float *scratch; /* one packet's elements */
	uint8_t *scratch_out;
	/* the optimizer's: its part of the parameters, and what it remembers */
	float *parameters, *state[2];
};

/* ring.c */
void *ring_array(size_t n, size_t size);

/* pairs.c */
void ring_connect(struct fabric *f, struct ring_member *from, struct ring_member *to);
void ring_part_with(struct ring_member *r);

/* schedule.c */
uint64_t ring_chunk(const struct ring_member *r, uint64_t count, uint32_t chunk, uint64_t *start);
uint64_t ring_part(const struct ring_member *r, const struct ring_pass *q, uint32_t chunk, uint64_t *start);
uint32_t ring_sends(const struct ring_member *r, const struct ring_pass *q, uint32_t hop);
uint32_t ring_receives(const struct ring_member *r, const struct ring_pass *q, uint32_t hop);
uint64_t ring_packets(const struct ring_member *r, uint64_t elements);
uint32_t ring_wire_bytes(const struct ring_member *r, uint32_t elements);
uint8_t *ring_memory(const struct ring_member *r, uint32_t key, uint64_t at, uint64_t bytes);

/* pass.c */
void ring_later(struct ring_member *r, ps_t t);
struct ring_pass *ring_next(const struct ring_pass *q);
void ring_admit(struct ring_member *r);
void ring_advance(struct ring_member *r);
void ring_settle(struct ring_member *r);
void ring_post(struct fabric *f, struct member *m, const struct offload_wr *wr);
bool ring_due(const struct member *m, uint64_t what);

/* gate_keeper.c */
void gate_read_ahead(struct ring_member *r);
void gate_own_ready(struct ring_member *r);
void gate_open(struct ring_member *r);
const uint8_t *gate_payload(struct fabric *f, struct qp *q, const struct send_wr *wr, uint64_t n);

/* data_director.c */
enum engine_verdict director_take(struct fabric *f, struct qp *q, const struct roce_packet *pkt);

/* compute_enhancer.c */
void engine_combine(enum element e, enum reduction how, uint8_t *with, const uint8_t *mine, size_t n);
void engine_give(struct ring_member *r);
void engine_done(struct ring_member *r);

/* result_writer.c */
void result_keep(struct ring_member *r, struct ring_pass *of, uint32_t bytes);
void result_write(struct ring_member *r);
bool result_room(const struct ring_member *r, bool sum);

/* bfp.c */
uint32_t bfp_bytes(uint32_t elements);
void bfp_encode(uint8_t *to, const float *from, uint32_t n);
void bfp_decode(float *to, const uint8_t *from, uint32_t n);

/* optimizer.c */
bool optimizer_args_good(enum ring_optimizer o, const struct offload_wr *wr);
uint32_t optimizer_arrays(enum ring_optimizer o);
void optimizer_step(const struct ring_member *r, const struct offload_wr *wr, uint64_t at, uint32_t n, float *gradients);


#endif
