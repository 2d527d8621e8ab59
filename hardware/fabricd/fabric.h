/* The fabric: everything that exists in one emulated cluster network.
 *
 * One `struct fabric` per process; every function gets it (or a part of it)
 * as an argument.  Emulated time is counted in picoseconds (ps_t), because a
 * byte at 400 Gb/s takes 20 of them.
 */
#ifndef FABRIC_H
#define FABRIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cc.h"
#include "params.h"
#include "patience.h"
#include "records.h"

#define NAME_BYTES 48
#define CLASS_DEFAULT 0
#define TRAILER_BYTES 16

struct fabric;
struct nic;
struct qp;
struct roce_packet;
struct worker;
struct port;
struct tx;
struct group;
struct member;
struct accelerator;
struct offload_wr;
struct qp_engine;

#define MEMBER_BUCKETS 256

/* ---- frames (frame.c) ---- */
struct frame {
	struct frame *next;
	uint64_t id;	   /* in order of creation, kept by copies */
	uint32_t len;	   /* without FCS and trailer */
	uint8_t class;
	struct tx *credit; /* NIC transmit buffer that it occupies, or NULL */
	struct qp *from;   /* queue pair that sends it, or NULL: it counts the frame when it goes onto the wire */
	uint32_t payload;  /* likewise: bytes of payload in it */
	uint64_t number;   /* likewise: which of its packets it is */
	bool asks;	   /* likewise: to be acknowledged */
	bool data_of_worker; /* of a NIC's worker: counted as sent when it goes onto the wire */
	struct nic *to;	   /* scale-up domain: destination */
	struct passage *way; /* through the switch that it is in, or on its way to */
	uint8_t users;	   /* of a frame on its way to a switch: the event of its arrival, and Open vSwitch */
	bool pause;	   /* a MAC control frame: meant for the port at the other end of the cable */
	uint8_t data[];	   /* fabric.frame_room bytes */
};

/* A frame's way through one switch: shared by the frame that comes in and the copies that leave */
struct passage {
	struct passage *next;
	struct port *in;
	ps_t t_in;	/* when its last bit comes in */
	uint32_t bytes, users;
	uint8_t class;	/* by its DSCP as it came in */
	bool admitted;	/* occupies the buffer */
	bool lost;	/* the cable was cut before it came in, or there was no room: nothing leaves */
};

/* ---- events (event.c): ordered by (time, kind, node, port, ..), never by arrival ---- */
enum event_kind {
	EV_FAULT_NOW, /* a fault that was just injected goes on: a = struct fault, b = on */
	EV_FAULT,     /* a fault goes on or off in its time: likewise */
	EV_TRAFFIC,   /* a generated flow starts: a = struct generated */
	EV_CABLE,     /* a cable changes: a = struct change */
	EV_ANNOUNCE,  /* the controller is told: a = struct change */
	EV_GROUP_LEFT, /* a member has left its group: a = struct member */
	EV_GROUP,     /* all members of a group have called: a = struct group */
	EV_GROUP_OPEN, /* it is open, or refused: likewise */
	EV_DOORBELL,  /* a worker's post reaches its NIC: a = struct post */
	EV_FETCHED,   /* payload fetched over PCIe: a = frame, b = 1 for the scale-up port */
	EV_HAND_OVER, /* Open vSwitch gets a frame that has just left for a switch: a = frame */
	EV_PORT_FREE, /* the last bit has left: a = port */
	EV_PAUSE_END, /* a pause may have run out: a = port */
	EV_PAUSE_AGAIN, /* a port that has sent XOFF says it again: a = port */
	EV_ARRIVE,    /* the last bit has come in: a = frame, b = cable epoch */
	EV_PAUSE_ARRIVE, /* of a pause frame, likewise */
	EV_FORWARD,   /* out of a switch's pipeline: a = frame */
	EV_NO_WAY,    /* nothing came out of it for this one: a = frame */
	EV_DELIVER,   /* out of the scale-up domain: a = frame */
	EV_WATCHDOG,  /* a look at a queue that was paused: a = port, b = class */
	EV_QP_TIMER,  /* a = qp */
	EV_QP_SEND,   /* the pacer looks at a queue pair again: a = qp */
	EV_OFFLOAD,   /* what an offload has set for itself: a = its nic, b = group */
	EV_RX_DRAINED, /* a NIC's receive buffer may have room: a = nic */
	EV_RECV_USABLE, /* a slow receiver's receives become usable: a = qp, b = how many */
	EV_WAKE,      /* a = worker; last of its time, so that all completions of that time are in */
};

struct event {
	ps_t t;
	uint64_t key; /* kind << 56 | node << 32 | port << 16 | other port */
	uint64_t seq; /* frame id, post number .. */
	void *a;
	uint64_t b;
};

struct heap {
	struct event *ev;
	size_t n, room;
	size_t background; /* pauses and faults that come and go: alone, they lead to nothing */
};

/* ---- ports and cables (port.c) ---- */
enum drop {
	DROP_TAIL,		/* the buffer is full */
	DROP_FORWARDING,	/* no rule sends it anywhere */
	DROP_CABLE,		/* the cable is down */
	DROP_ICRC,		/* wrong checksum at the receiver */
	DROP_NO_QP,		/* for nobody here */
	DROP_MALFORMED,
	DROP_LOSSY,		/* a lossy class's queue is over its threshold */
	DROP_HEADROOM,		/* a lossless class's headroom is full */
	DROP_FAULT,		/* an injected loss */
	DROP_NO_RECEIVE_BUFFER,	/* the NIC's is full */
	DROP_TTL,		/* ran out */
	DROP_WATCHDOG,		/* the PFC watchdog empties the queue */
	DROP_MTU,		/* longer than the cable carries */
	DROPS
};

/* The start of the last frame that was dropped for some reason */
#define DROPPED_BYTES 80
struct dropped {
	uint32_t len;
	uint8_t data[DROPPED_BYTES];
};

struct fifo {
	struct frame *head, *tail;
	uint32_t frames;
	uint64_t bytes;
};

enum node_kind { NODE_SWITCH, NODE_NIC, NODE_ACCELERATOR };

struct node {
	enum node_kind kind;
	char name[NAME_BYTES];
	uint32_t index; /* over switches, then NICs */
	uint16_t port_count;
	struct port *ports;
};

struct cable {
	char name[2 * NAME_BYTES];
	struct port *end[2];
	struct port *base_end[2], *wanted[2]; /* as configured; as swaps say */
	struct cable_params base, p;
	bool announced_down;
	uint32_t epoch; /* goes up with every cut: what was on the wire then is lost */
};

/* What came in at one port in one class and occupies the switch's buffer */
struct priority_group {
	uint64_t bytes;	   /* in the reserve and the shared part */
	uint64_t headroom; /* beyond: what still came in after XOFF */
	uint64_t max_bytes, headroom_max;
	uint64_t refused; /* what a frame that was dropped needs of the shared part: no XON before there is that much */
	bool xoff;
};

/* PFC and the counts of one class at one port */
struct lane {
	struct priority_group in; /* switches */
	ps_t paused_since, paused_until, paused_total;
	ps_t watchdog_from;	/* the pause that EV_WATCHDOG looks at began then; PS_NEVER: none is due */
	ps_t pause_seen;	/* the last XOFF */
	int64_t deficit;	/* of the scheduler */
	uint64_t queue_max;
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t tx_pause, rx_pause, pauses; /* XOFF frames sent and received, times that a pause began */
	uint64_t storms; /* times that the watchdog stepped in */
	uint64_t marked, drops, drop_bytes;
};

struct port {
	struct node *node;
	uint16_t number; /* from 1; a NIC's scale-up port is 2 */
	uint32_t index;	 /* over all ports of the fabric */
	uint32_t frame_faults; /* that look at what leaves here */
	struct cable *cable;
	struct port *peer;
	struct port_params base, p;
	struct fifo queue[CLASSES];
	struct fifo control;  /* pause frames: go first */
	struct lane lane[CLASSES];
	uint64_t queued_bytes, queued_max;
	uint8_t classes_used; /* bit per class with frames */
	uint8_t paused;	      /* by the other end */
	uint8_t xoff;	      /* we pause the other end */
	uint8_t dropping, deaf; /* the watchdog drops a class; does not heed its pauses */
	uint8_t scheduled;    /* class whose turn it is */
	ps_t pause_end_event; /* the earliest EV_PAUSE_END that is due, or PS_NEVER */
	ps_t again_at;	      /* when XOFF is to be said again */
	bool again_event;     /* EV_PAUSE_AGAIN is due, then or before */
	bool free_event;      /* EV_PORT_FREE is due */
	ps_t busy_until;
	ps_t arrives; /* the last frame sent, at the far end */
	uint32_t ser_len; /* serialization of the last length asked for */
	ps_t ser_ps;
	int tap; /* switch: its TAP; -1 otherwise */
	uint32_t tap_pending;
	uint32_t tap_pending_bytes;
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t drops[DROPS];
	struct dropped *last_drop[DROPS];
	struct capture *capture;
	int capture_if;
};

/* ---- switches (switch.c) ---- */
struct sw {
	struct node n;
	ps_t latency;
	struct switch_params base, p;
	uint64_t set_aside; /* of the buffer: reserves and headrooms of all groups in use */
	uint32_t refusing;  /* groups that have refused a frame and not said XON since */
	uint64_t shared;    /* of the rest: occupied */
	uint64_t used, used_max;
	uint64_t frames_in, forwarding_drops;
	bool deadlock_said;
	struct accelerator *accelerator; /* on its last port, or NULL */
};

/* A frame inside Open vSwitch: handed over, not yet settled */
struct pending {
	struct pending *prev, *next;
	struct frame *frame; /* the original, kept until settled */
	struct port *in;
	ps_t deadline;
	uint64_t number; /* in order of handing over: fences settle all up to one */
	uint32_t generation;
	uint16_t slot;
	bool in_use, many; /* many: may come back more than once */
	uint16_t copies;
};

#define PENDING_MAX 2048
struct ovs {
	struct pending slot[PENDING_MAX];
	uint16_t free_slot[PENDING_MAX];
	uint32_t free_count;
	struct pending *head, *tail; /* by deadline */
	uint64_t last_number;
	uint32_t room_bytes; /* what one TAP's reader (OVS) is sure to hold */
	uint32_t nonce;
	int fence_tap;
	int fence_round; /* 0: none under way */
	uint64_t fence_upto, fence_token;
	struct patience patience; /* with the fence under way */
	int64_t settled_ns;	  /* wall time when one was settled last, or the first of them handed over */
	uint64_t fences, flagged, hops, write_errors;
	uint64_t unconfirmed; /* times that the controller was not sure that its rules are in force */
	int64_t first_ns, last_ns; /* wall time of the first hand-over, and of the last look at what came out */
	json_t *flagged_examples;
};

/* ---- NICs (nic.c) ---- */
struct region {
	uint8_t *base;
	uint64_t bytes;
};

/* Who sends from a NIC: a queue pair, or a member of an offloaded group */
struct tx_source {
	struct tx_source *next;
	const struct tx_ops *ops;
	bool ready; /* is in its tx's round */
};

struct tx_ops {
	bool (*has_packet)(const struct fabric *f, const struct tx_source *s);
	/* Build the next packet, with class and destination.  Return: bytes to be fetched over PCIe, or IN_NIC */
	uint32_t (*build)(struct fabric *f, struct tx_source *s, struct frame *fr);
	void (*held)(struct fabric *f, struct tx_source *s); /* has none for now */
};

#define IN_NIC UINT32_MAX /* it stands in the NIC's memory */

/* One way out of a NIC: its cable, or the scale-up domain */
struct tx {
	struct nic *nic;
	struct port *port;
	uint64_t used_bytes; /* in the transmit buffer: being fetched or queued, not what the pacer holds */
	struct tx_source *ready_head, *ready_tail; /* that have something to send, round robin */
};

struct scale_up {
	int64_t rate_bps;
	ps_t delay;
	struct cable cable; /* rate and delay in the form that ports know */
};

#define SENT_KEPT 256
struct sent { /* sent.c: the last changes of a count, oldest overwritten */
	uint64_t count;
	ps_t at[SENT_KEPT];
	uint64_t bytes[SENT_KEPT];
};

struct nic {
	struct node n;
	struct port port[2]; /* 0: cable, 1: scale-up */
	struct tx tx[2];
	struct scale_up *scale_up;
	ps_t scale_rx_free;
	uint32_t rank;
	uint8_t mac[6];
	uint32_t ip;
	uint32_t mtu;
	struct nic_params base, p;
	ps_t pcie_tx_free, pcie_rx_free;
	uint64_t pcie_read_bytes, pcie_write_bytes;
	ps_t engine_free;	/* its adder (compute_enhancer.c) */
	uint64_t engine_used;	/* of its memory, in bytes */
	uint64_t engine_added, engine_diverted, engine_full;
	ps_t pressure_event; /* the EV_RX_DRAINED that is due, or PS_NEVER */
	bool pressed; /* its receive buffer is over the threshold: classes are paused */
	struct worker *worker;
	struct qp **qps;
	uint32_t qp_count, qp_room;
	uint32_t qp_first; /* numbers before the first one's that are taken (worker_again.c) */
	int netdev;
	char netdev_name[16];
	bool netdev_paused;
	uint64_t netdev_drops;
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	uint64_t tx_many_packets, tx_many_bytes, rx_many_packets, rx_many_bytes; /* of those: to multicast addresses */
	uint64_t out_of_sequence, packet_seq_err, duplicate_request, timeouts, rnr_naks, icrc_errors, retransmitted;
	uint64_t np_marked, np_cnps, rp_cnps, rp_ignored, out_of_buffer;
	struct sent sent;
	struct member *member[MEMBER_BUCKETS]; /* of groups that have a number, by that (offload.c) */
};

/* ---- queue pairs (qp_send.c, qp_receive.c) ---- */

/* What makes and takes the packets of a queue pair inside the NIC, instead of a worker's memory */
struct qp_engine {
	const struct qp_engine_ops *ops;
};

enum engine_verdict { ENGINE_TAKEN, ENGINE_NOT_YET, ENGINE_REFUSED };

struct qp_engine_ops {
	/* Payload of packet @n, which goes out now, perhaps again; it is there since qp.made has passed it */
	const uint8_t *(*payload)(struct fabric *f, struct qp *q, uint64_t n);
	/* The expected packet has come.  NOT_YET: it is to come again (RNR) */
	enum engine_verdict (*take)(struct fabric *f, struct qp *q, const struct roce_packet *pkt);
	void (*acked)(struct fabric *f, struct qp *q); /* qp.acked has moved */
	void (*failed)(struct fabric *f, struct qp *q);
	void (*release)(struct qp *q); /* the queue pair goes */
};

enum qp_state { QP_CONNECTING, QP_READY, QP_ERROR };
enum wr_opcode { WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_OPCODES };
enum wc_status { WC_SUCCESS = 0, WC_FLUSHED = 5, WC_REMOTE_ACCESS = 10, WC_RETRY = 12, WC_RNR_RETRY = 13 };

struct send_wr {
	uint64_t wr_id, local, remote, length;
	uint32_t lkey, rkey, imm;
	uint8_t opcode;
	bool signaled;
	uint64_t first; /* packet number of its first packet, and how many */
	uint64_t packets;
};

struct recv_wr {
	uint64_t wr_id, offset, length;
	uint32_t lkey;
};

struct ring { /* of send_wr or recv_wr: grows to a limit, power of two */
	void *at;
	uint32_t head, tail, room;
};

struct qp {
	struct tx_source source;
	struct nic *nic;
	uint32_t number, peer_number;
	struct nic *peer;
	struct qp *peer_qp;
	enum qp_state state;
	enum wc_status error;
	struct tx *tx;
	uint32_t mtu;
	uint16_t src_port;
	uint32_t connect_tag, connect_peer, connect_cookie;
	bool no_scale_up;
	uint8_t private_data[256];
	uint16_t private_bytes;
	ps_t connect_time;
	/* sender: packets are counted from 0, the PSN is their low 24 bits */
	struct ring sq;
	uint64_t next_packet; /* next number to hand out to a posted request */
	uint64_t made; /* first packet that is not there to be sent yet: only an engine makes them one by one */
	struct qp_engine *engine; /* or NULL */
	uint64_t asked; /* behind the last packet that asks for an acknowledgement */
	uint64_t send, acked, sent_max; /* next to send, first not acknowledged, first never sent */
	uint32_t send_wr_index; /* request that `send` belongs to */
	ps_t timer, rnr_until;
	ps_t timer_event; /* the earliest EV_QP_TIMER that is due, or PS_NEVER */
	uint32_t retries, rnr_retries;
	/* receiver */
	struct ring rq;
	uint64_t expected;
	bool nak_sent;
	uint32_t msn;
	bool in_message;
	uint8_t message_kind;
	uint32_t message_rkey;
	uint64_t message_at, message_left, message_bytes;
	uint64_t usable;      /* receives that the NIC may use: of recv_delay */
	ps_t cnp_sent;	      /* when the last congestion notification went out */
	uint32_t seen, marked; /* data packets since the last acknowledgement, and those with CE */
	struct telemetry last; /* of the packet that is acknowledged next */
	struct reorder *reorder; /* selective repeat: what came ahead */
	/* congestion control */
	const struct cc_algorithm *cc;
	struct cc_state cc_state;
	/* pacer.c */
	ps_t next_send;	      /* not before, if it is paced */
	ps_t pace_event;      /* the earliest EV_QP_SEND that is due, or PS_NEVER */
	struct fifo held;     /* fetched, and not due */
	struct frame *due;    /* one that was held and has joined the port's queue again, or NULL */
	uint64_t fetched_bytes; /* in the NIC: being fetched, held or queued */
	uint64_t left, left_asked; /* behind the last packet that has left, and the last one that asked to be acknowledged */
	uint64_t sent_bytes_acked;
	struct repeat *repeat; /* selective repeat: what is to be sent again */
	struct generated *generated; /* a flow of the traffic generator, or NULL */
	/* counters */
	uint64_t tx_packets, tx_bytes, retransmitted, cnps;
	struct qp_sample {
		uint32_t number;
		uint64_t rate, sent, flying;
	} sample; /* what was written of it last */
};

/* ---- workers (worker.c) ---- */
enum worker_state { WORKER_ABSENT, WORKER_RUNNING, WORKER_WAITING, WORKER_DONE, WORKER_LOST };

#define WORKER_PROTOCOL 2
#define NICS_MAX 8192
#define REGIONS_MAX 256
#define REGION_BYTES_MAX (64ull << 30)
#define QPS_MAX 4096
#define QP_NUMBERS (1u << 24)
#define WRS_MAX 16384
#define POSTS_MAX 65536
#define SYNCS_MAX 256
#define SYNC_BITS 10
#define RECORDS_MAX 65536
#define MESSAGE_MAX 65536

struct worker {
	struct fabric *f;
	struct nic *nic;
	uint32_t rank;
	enum worker_state state;
	bool expected; /* named by `start`: the clock waits for it */
	int listen_fd, fd;
	ps_t now; /* its own clock: it is that far */
	ps_t host; /* of that: what posts and SPEND took, not waiting */
	uint64_t wait_records;
	ps_t wait_until;
	uint64_t wake_number; /* EV_WAKE with another number is stale */
	ps_t wake_at;
	struct records records; /* not fetched yet */
	struct region region[REGIONS_MAX];
	uint32_t region_count;
	uint64_t region_bytes;
	ps_t compute_free;
	uint64_t posts;
	uint32_t posts_under_way; /* that have not reached the NIC yet */
	uint32_t syncing, connecting; /* not yet answered */
	struct patience patience; /* with it while it runs */
	bool hung; /* that was said */
	bool asleep; /* should have been woken, but is frozen */
	char reason[256];
};

struct post {
	struct worker *w;
	uint32_t qp; /* or group */
	enum { POST_KIND_SEND, POST_KIND_RECV, POST_KIND_OFFLOAD } kind;
	union {
		struct send_wr send;
		struct recv_wr receive;
		struct offload_wr *offload;
	};
};

struct sync {
	struct sync *next;
	uint32_t tag, participants, count;
	ps_t t;
	uint32_t *ranks;
	uint8_t *come; /* a bit for each rank */
};

/* A change of a cable, scheduled or announced */
struct change {
	struct cable *cable;
	bool set_up, up;
	int64_t rate_bps; /* 0: stays */
	ps_t delay;	  /* < 0: stays */
	struct change *next;
};

/* ---- control (control.c) ---- */
struct control_conn {
	struct control_conn *next;
	int fd;
	char *in;
	size_t in_bytes, in_room;
	char *out;
	size_t out_bytes, out_room;
	bool subscribed, settles, closing;
	uint32_t holds; /* events that it has still to answer */
	bool pinged;	/* asked for a sign of life */
	bool silent;	/* judged dead: not waited for until it says something */
	struct patience patience;
	char acts[16]; /* what `act` events it is for: controller, agent or nothing */
	json_t *quiesce_id;
	bool quiesce;
};

/* ---- the clock (clock.c) ---- */
enum clock_mode { CLOCK_VIRTUAL, CLOCK_REAL };

#define LATENESS_BUCKETS 640
struct hold;
struct clock {
	enum clock_mode mode;
	int64_t dilation;
	int64_t wall_start_ns;
	ps_t now;
	bool started;	 /* `start` was asked for */
	ps_t workers;	 /* no running worker can act before this */
	ps_t workers_now; /* the earliest time that a running worker shows */
	ps_t hold;	 /* the controller is being waited for: stand still here */
	struct hold *holds; /* answers still missing (hold.c) */
	uint32_t hold_left, hold_room;
	int64_t ticked_ns;
	uint64_t events;
	uint64_t lateness[LATENESS_BUCKETS]; /* wall ns, 16 buckets an octave */
	uint64_t lateness_count;
	int64_t lateness_max;
	uint64_t controller_timeouts; /* events that nobody answered */
	uint64_t controller_silent;   /* times that a controller was judged dead with its connection open */
};

struct fabric {
	char id[16];
	uint64_t seed;
	struct clock clock;
	struct heap heap;
	struct node **nodes; /* switches, NICs, accelerators: by node index */
	uint32_t node_count;
	struct sw *switches;
	uint32_t switch_count;
	struct nic *nics;
	uint32_t nic_count;
	struct worker *workers;
	struct cable *cables;
	uint32_t cable_count;
	struct scale_up *scale_ups;
	uint32_t scale_up_count;
	struct accelerator *accelerators;
	uint32_t accelerator_count;
	struct group *groups;
	uint32_t last_job;
	struct ovs ovs;
	struct frame *frame_free;
	struct passage *passage_free;
	struct passage **passage_slabs;
	size_t passage_slab_count;
	void **frame_slabs;
	size_t frame_slab_count;
	uint32_t frame_room;
	uint64_t last_frame_id;
	struct sync *syncs[1 << SYNC_BITS]; /* by hash (sync.c) */
	uint64_t deadlocks;
	struct sampler *sampler; /* NULL: no time series */
	struct fault *faults, *healed;
	uint64_t last_fault_order;
	uint32_t port_count;
	ps_t reaction, reaction_base;
	bool stamps; /* some control asks switches for telemetry */
	struct change *changes; /* all of them, freed at the end */
	uint64_t last_change, last_port_event;
	uint64_t worker_bytes; /* that a worker may register: what nobody has touched yet is charged to us */
	int64_t patience_ns;
	int epoll_fd, control_fd;
	struct control_conn *conns;
	struct capture *captures;
	volatile bool stop; /* set by a signal, too */
	bool failed;	    /* it stops because it cannot go on */
	bool stalled_said;
	char error[512];
	json_t *config;
};

/* frame.c */
struct frame *frame_new(struct fabric *f);
void frame_free(struct fabric *f, struct frame *fr);
struct passage *passage_new(struct fabric *f, struct port *in, ps_t t_in, uint32_t bytes);
struct passage *passage_join(struct passage *way);
void passage_leave(struct fabric *f, struct frame *fr);
void frame_describe(const uint8_t *data, size_t have, size_t len, char *text, size_t room);
void frames_close(struct fabric *f);

/* sync.c */
void worker_sync(struct fabric *f, struct worker *w, uint32_t tag, uint32_t participants);
void syncs_forget(struct fabric *f);

/* event.c */
void event_add(struct fabric *f, ps_t t, enum event_kind kind, uint32_t node, uint32_t port, uint32_t other,
	       uint64_t seq, void *a, uint64_t b);
void event_forget(struct fabric *f, bool (*over)(struct event *e, void *context), void *context);
bool event_pop(struct heap *h, struct event *e);
enum event_kind event_kind(const struct event *e);

/* clock.c */
int64_t wall_ns(void);
ps_t clock_limit(const struct fabric *f);
void clock_workers_changed(struct fabric *f);
void clock_start_real(struct fabric *f);
ps_t clock_real_now(const struct fabric *f);
void clock_late(struct fabric *f, int64_t late_ns);
int64_t clock_lateness_ns(const struct fabric *f, double quantile);
void fabric_run(struct fabric *f);
bool fabric_step(struct fabric *f);
bool fabric_idle(const struct fabric *f);

/* hold.c */
bool clock_hold(struct fabric *f, uint64_t id, struct control_conn *conn);
bool clock_held(const struct fabric *f, uint64_t id);
bool clock_answered(struct fabric *f, uint64_t id);
void clock_unanswered(struct fabric *f, struct control_conn *conn, const char *why);
void clock_look_after(struct fabric *f);
void controllers_ping(struct fabric *f);
json_t *clock_waits_json(const struct fabric *f);
json_t *controllers_json(const struct fabric *f);

/* port.c */
ps_t port_serialization(struct port *p, uint32_t len);
uint32_t wire_bytes(uint32_t len);
void port_enqueue(struct fabric *f, struct port *p, struct frame *fr);
void port_free(struct fabric *f, struct port *p);
void port_kick(struct fabric *f, struct port *p);
void port_flush_class(struct fabric *f, struct port *p, unsigned class, enum drop why);
void port_arrive(struct fabric *f, struct port *p, struct frame *fr, uint32_t epoch);
void port_lost(struct fabric *f, struct port *p, const struct frame *fr, enum drop why);
void port_drop(struct fabric *f, struct port *p, struct frame *fr, enum drop why);
void port_cut(struct fabric *f, struct port *p);
const char *drop_name(enum drop why);

/* cable.c */
struct change *change_new(struct fabric *f, const struct change *what);
void cable_unplug(struct fabric *f, struct cable *cable);
void cable_plug(struct fabric *f, struct cable *cable);
void cable_in_force(struct fabric *f, struct cable *cable);
void cable_apply(struct fabric *f, struct change *c);
void cable_announce(struct fabric *f, struct change *c);
void cables_down_say(struct fabric *f, struct control_conn *c);

/* buffer.c */
uint8_t buffer_class(const struct sw *s, const struct frame *fr);
void buffer_changed(struct fabric *f, struct sw *s);
bool buffer_admit(struct fabric *f, struct sw *s, struct passage *way, enum drop *why);
void buffer_release(struct fabric *f, struct sw *s, struct passage *way);
uint64_t buffer_threshold(const struct sw *s);
bool buffer_queue_full(const struct sw *s, const struct port *out, unsigned class, uint32_t bytes);

/* scheduler.c */
unsigned scheduler_pick(const struct fabric *f, struct port *p, uint8_t ready);
void scheduler_sent(struct port *p, unsigned class, uint32_t bytes);

/* ecn.c */
bool is_ipv4(const struct frame *fr);
void ip_set_tos(struct frame *fr, uint8_t tos);
bool ip_hop(struct frame *fr);
void ecn_dequeued(struct fabric *f, struct port *p, unsigned class, struct frame *fr);

/* pfc.c, watchdog.c, deadlock.c */
ps_t pfc_time(const struct port *p, uint16_t quanta);
void pfc_say(struct fabric *f, struct port *p, uint8_t classes, bool xoff);
void pfc_again(struct fabric *f, struct port *p);
void pfc_receive(struct fabric *f, struct port *p, struct frame *fr);
void pfc_waits(struct fabric *f, struct port *p);
void pfc_end(struct fabric *f, struct port *p, ps_t t);
void pfc_changed(struct fabric *f, struct port *p);
void watchdog_paused(struct fabric *f, struct port *p, unsigned class);
void watchdog_look(struct fabric *f, struct port *p, unsigned class);
void watchdog_changed(struct fabric *f, struct sw *s);
void deadlock_look(struct fabric *f, struct port *p, unsigned class);

/* params.c */
extern const struct switch_params switch_plain;
const char *switch_params_set(struct switch_params *p, const json_t *o);
const char *port_params_set(struct port_params *p, const json_t *o);
const char *cable_params_set(struct cable_params *p, const json_t *o);
const char *nic_params_set(struct fabric *f, struct nic_params *p, const json_t *o);

/* switch.c */
void switch_ingress(struct fabric *f, struct port *in, struct frame *fr);
void switch_forward(struct fabric *f, struct port *out, struct frame *fr);
void switch_no_way(struct fabric *f, struct frame *fr);

/* ovs.c, tap.c */
int tap_open(const char *name, char *error, size_t room);
bool tap_queue(const char *name, int frames, char *error, size_t room);
int tap_open_in(const char *netns, const char *name, char *error, size_t room);
bool ovs_open(struct fabric *f, const char *fence_tap);
void ovs_hand_over(struct fabric *f, struct frame *fr);
void ovs_readable(struct fabric *f, struct port *out);
void ovs_fence_readable(struct fabric *f);
void ovs_fence_start(struct fabric *f);
bool ovs_room(const struct fabric *f, const struct port *in);
void ovs_tick(struct fabric *f);
void ovs_close(struct fabric *f);

/* sent.c */
void nic_on_wire(struct fabric *f, struct frame *fr);
uint64_t nic_sent_bytes(const struct nic *n, ps_t t);

/* nic.c */
void nic_receive(struct fabric *f, struct nic *n, struct frame *fr, bool scale_up);
void nic_tx_ready(struct fabric *f, struct tx *tx, struct tx_source *s);
void nic_tx_forget(struct tx *tx, const struct tx_source *s);
void nic_tx_kick(struct fabric *f, struct tx *tx);
void nic_control_frame(struct fabric *f, struct qp *q, struct frame *fr, uint32_t class);
void nic_netdev_readable(struct fabric *f, struct nic *n);
void nic_netdev_resume(struct fabric *f, struct nic *n);
void scale_up_arrive(struct fabric *f, struct frame *fr);
ps_t pcie_write(struct nic *n, ps_t now, uint32_t bytes);
ps_t pcie_read(struct nic *n, ps_t now, uint32_t bytes);
ps_t pcie_read_time(const struct nic *n, ps_t now, uint32_t bytes);

/* pacer.c */
void pacer_kick(struct fabric *f, struct qp *q);
void pacer_event(struct fabric *f, struct qp *q, ps_t t);
bool pacer_full(const struct fabric *f, const struct qp *q);
bool pacer_passes(struct fabric *f, struct frame *fr);
void pacer_sent(struct fabric *f, struct frame *fr);
void pacer_gone(struct fabric *f, struct frame *fr);
void pacer_flush(struct fabric *f, struct qp *q);

/* nic_pressure.c */
bool nic_rx_room(struct fabric *f, struct nic *n, uint32_t bytes);
void nic_pressure(struct fabric *f, struct nic *n);
void nic_drained(struct fabric *f, struct nic *n);
void nic_params_changed(struct fabric *f, struct nic *n);

/* telemetry.c */
uint32_t telemetry_append(uint8_t *frame, uint32_t len, const struct telemetry *t);
void telemetry_sent(uint8_t *frame, size_t len, uint64_t sent_ps);
void telemetry_read(const uint8_t *frame, size_t len, struct telemetry *t);
void telemetry_stamp(struct fabric *f, const struct port *p, unsigned class, struct frame *fr);
#define TELEMETRY_BYTES(hops) (16 + 16 * (hops))
#define TELEMETRY_MAX_BYTES TELEMETRY_BYTES(HOPS_MAX)

/* reorder.c */
bool reorder_keep(struct qp *q, uint32_t ahead, struct frame *fr);
struct frame *reorder_take(struct qp *q);
void reorder_drop(struct fabric *f, struct qp *q);
void repeat_came(struct qp *q, uint64_t n);
void repeat_timeout(struct qp *q);
void repeat_acked(struct qp *q, uint64_t before);
void repeat_forget(struct qp *q);
bool repeat_next(const struct qp *q, uint64_t *n);
void repeat_sent(struct qp *q);
void reorder_release(struct qp *q);

/* qp_send.c */
extern const struct tx_ops qp_tx_ops;
void qp_ready(struct fabric *f, struct qp *q);
struct qp *qp_new(struct nic *n);
struct qp *qp_find(struct nic *n, uint32_t number);
void qp_connected(struct fabric *f, struct qp *a, struct qp *b);
void qp_post_send(struct fabric *f, struct qp *q, const struct send_wr *wr);
void qp_post_recv(struct fabric *f, struct qp *q, const struct recv_wr *wr);
void qp_acknowledged(struct fabric *f, struct qp *q, const struct roce_packet *pkt, const struct frame *fr);
bool qp_slow(const struct qp *q, uint32_t frame_bytes);
bool qp_timer_set(struct qp *q, ps_t t);
void qp_timer(struct fabric *f, struct qp *q);
void qp_fail(struct fabric *f, struct qp *q, enum wc_status why);
void qp_release(struct qp *q);
void *ring_push(struct ring *r, size_t size, uint32_t limit);
void *ring_at(const struct ring *r, size_t size, uint32_t index);
#define SEND_WR(q, i) ((struct send_wr *)ring_at(&(q)->sq, sizeof(struct send_wr), (i)))

/* qp_receive.c */
bool qp_receive(struct fabric *f, struct qp *q, const struct roce_packet *pkt, struct frame *fr);
void qp_recv_usable(struct qp *q, uint32_t count);

/* worker.c, worker_message.c, worker_again.c */
bool workers_open(struct fabric *f, const char *dir);
void worker_accept(struct fabric *f, struct worker *w);
void worker_readable(struct fabric *f, struct worker *w);
void worker_end(struct fabric *f, struct worker *w, enum worker_state how, const char *why);
void worker_record(struct fabric *f, struct worker *w, const struct record *r);
bool worker_wakes(const struct worker *w, uint64_t number);
void worker_wake(struct fabric *f, struct worker *w);
void worker_thaw(struct fabric *f, struct worker *w);
void worker_wait(struct fabric *f, struct worker *w, uint64_t records, ps_t until);
void worker_send(struct fabric *f, struct worker *w, const void *data, size_t len);
bool worker_must_wait(const struct fabric *f, const struct worker *w);
void worker_look_after(struct fabric *f);
json_t *worker_waits_json(const struct fabric *f);
struct region *worker_region(struct worker *w, uint32_t key, uint64_t offset, uint64_t length);
const char *worker_state_name(enum worker_state s);
void worker_waits_for(const struct worker *w, char *text, size_t room);
void worker_message(struct fabric *f, struct worker *w, const uint8_t *data, size_t len, int memfd);
void post_free(struct post *p);
void worker_doorbell(struct fabric *f, struct post *p);
void workers_close(struct fabric *f);
void regions_unmap(struct worker *w);
const char *workers_again(struct fabric *f);

/* control.c, control_ops.c, counters.c */
bool control_open(struct fabric *f, const char *path);
void control_accept(struct fabric *f);
void control_readable(struct fabric *f, struct control_conn *c);
void control_writable(struct fabric *f, struct control_conn *c);
void control_send(struct fabric *f, struct control_conn *c, json_t *object);
void control_event(struct fabric *f, const char *kind, json_t *fields);
void control_idle(struct fabric *f);
void control_sweep(struct fabric *f);
void control_close(struct fabric *f);
void control_line(struct fabric *f, struct control_conn *c, const char *text, size_t len);
json_t *counters_json(struct fabric *f);
json_t *ns_json(ps_t t);

/* fault.c, fault_frames.c, fault_params.c, traffic.c */
struct fault;
struct generated;
struct frame_fate {
	bool dropped, reorder;
	uint32_t duplicates;
	ps_t delay;
};
const char *fault_inject(struct fabric *f, const json_t *request);
const char *fault_heal(struct fabric *f, const char *id);
void fault_event(struct fabric *f, struct fault *x, bool on);
void acts_say(struct fabric *f, struct control_conn *c);
void controller_ask(struct fabric *f);
bool controller_made_to_hang(const struct fabric *f);
json_t *faults_json(struct fabric *f);
json_t *fault_counts_json(struct fabric *f);
json_t *fault_flows_json(struct fabric *f, const char *id);
void faults_close(struct fabric *f);
struct frame_fate fault_frames(struct fabric *f, const struct port *p, struct frame *fr);
void fault_fold(struct fabric *f, int of, const void *object, void *params);
extern const uint8_t traffic_payload[];
void traffic_start(struct fabric *f, struct generated *g);
void traffic_ended(struct fabric *f, struct generated *g, bool failed);

/* sample.c */
struct sampler;
void sample_before(struct fabric *f, ps_t t);
void sample_pause(struct fabric *f, const struct port *p, unsigned class, bool on);
const char *sample_start(struct fabric *f, const char *path, ps_t period);
const char *sample_stop(struct fabric *f);
void sample_places(const struct fabric *f, json_t *answer);

/* capture.c */
const char *capture_start(struct fabric *f, struct port *p, const char *path);
const char *capture_stop(struct fabric *f, const char *path);
void capture_frame(struct fabric *f, struct port *p, const uint8_t *data, uint32_t len, bool outgoing);
void captures_close(struct fabric *f);

/* closer.c */
#define CLOSER_MAX 256
bool closer_start(void);
void close_later(int fd);
void unmap_later(void *base, size_t bytes);
bool closer_full(void);

/* privileges.c */
bool privileges_drop(struct fabric *f);

/* config.c */
bool config_load(struct fabric *f, json_t *config);
void port_init(struct port *p, struct node *n, uint16_t number);
bool config_fail(struct fabric *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct port *fabric_port_named(struct fabric *f, const char *name);
struct port *fabric_port(struct fabric *f, const char *node, uint32_t number);
struct cable *fabric_cable(struct fabric *f, const char *name);
void fabric_free(struct fabric *f);

/* epoll tags: what a file descriptor is (low bits of the data word) */
enum watch { WATCH_TAP, WATCH_FENCE, WATCH_NETDEV, WATCH_WORKER_LISTEN, WATCH_WORKER, WATCH_CONTROL_LISTEN, WATCH_CONTROL };
bool watch_add(struct fabric *f, int fd, enum watch what, void *object);
void watch_set(struct fabric *f, int fd, enum watch what, void *object, uint32_t events);
void watch_remove(struct fabric *f, int fd);
int watch_dispatch(struct fabric *f, int64_t timeout_ns);

#endif
