/* NICs: what sends from them, PCIe, buffers, the scale-up domain, the host's kernel
 *
 * Whatever has something to send is a `struct tx_source` and stands in a round, one for the cable and one for the
 * scale-up domain.  A packet that is fetched occupies the transmit buffer until it is on the wire: the frame
 * points to it (link/frame.h).  What comes in whole and right goes to who knows its kind of packet (`nic_receivers`).
 */
#ifndef NIC_NIC_H
#define NIC_NIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/port.h"
#include "nic/params.h"

struct member;
struct puller;
struct qp;
struct roce_packet;
struct tx_source;
struct worker;

#define MEMBER_BUCKETS 256

struct tx_ops {
	bool (*has_packet)(const struct fabric *f, const struct tx_source *s);
	/* Build the next packet, with class and destination, in a small frame.  Return: bytes to be fetched over PCIe, or IN_NIC */
	uint32_t (*build)(struct fabric *f, struct tx_source *s, struct frame *fr);
	void (*none)(struct fabric *f, struct tx_source *s); /* has none for now */
	/* Of a source that its frames name (`from`): the port would send a frame, may it go?  If not, it is deferred;
	 * it starts on the cable; it has left, or was dropped in the NIC */
	bool (*passes)(struct fabric *f, struct frame *fr);
	void (*on_wire)(struct fabric *f, struct frame *fr);
	void (*gone)(struct fabric *f, struct frame *fr);
};

#define IN_NIC UINT32_MAX /* it stands in the NIC's memory */

/* Who sends from a NIC: a queue pair, or a member of an offloaded group */
struct tx_source {
	struct tx_source *next;
	const struct tx_ops *ops;
	ps_t fetched; /* when all that it has built is there */
	bool ready;   /* is in its tx's round */
};

/* One way out of a NIC: its cable, or the scale-up domain */
struct tx {
	struct tx_buffer buffer; /* first: tx_of() */
	struct nic *nic;
	struct port *port;
	uint64_t used_bytes; /* in the transmit buffer: being fetched or queued, not what the pacer holds */
	struct tx_source *ready_head, *ready_tail; /* that have something to send, round robin */
};

struct scale_up {
	struct node n; /* its switch, for what that adds up or copies; other frames pass it as if it were a wire */
	struct port port;
	int64_t rate_bps;
	ps_t delay;
	struct cable cable; /* rate and delay in the form that ports know */
};

#define SENT_KEPT 256
struct sent { /* sent.c: the last changes of a count, oldest overwritten */
	uint64_t count;
	struct sent_change {
		ps_t at;
		uint64_t bytes;
	} last[SENT_KEPT];
};

/* How long the last transfer took, and of what: a division less for each packet */
struct pcie_took {
	uint32_t bytes;
	int64_t bps;
	ps_t ps;
};

/* RDMA packets through the cable, one way; [1]: those to multicast addresses */
struct vport {
	uint64_t packets[2], bytes[2];
};

/* A NIC's parameters with a transport over them: what queue pairs send or answer by that do not go by their NIC's */
struct nic_transport {
	struct nic_transport *next;
	const json_t *transport;
	struct nic_params p;
};

struct nic {
	struct node n;
	struct port port[2]; /* 0: cable, 1: scale-up */
	struct tx tx[2];
	struct scale_up *scale_up;
	struct cable *loop; /* by which it reaches itself, or NULL */
	ps_t scale_rx_free;
	uint32_t rank;
	uint8_t mac[6];
	uint32_t ip;
	uint32_t mtu;
	struct nic_params base, p;
	const json_t *transport; /* of its queue pairs, where they name none: NULL or a known one (config/transports.c) */
	struct nic_transport *transports;
	ps_t pcie_tx_free, pcie_rx_free;
	ps_t converts_out, converts_in; /* until when its host converts numbers, on their way out and in */
	struct pcie_took pcie_took;
	ps_t engine_free;	/* its adder (offload/ring/compute_enhancer.c) */
	uint64_t engine_used;	/* of its memory, in bytes */
	uint64_t device_memory_used; /* of what programs may have of it, in bytes (worker/memory.c) */
	ps_t pressure_event; /* the EV_RX_DRAINED that is due, or PS_NEVER */
	bool pressed; /* its receive buffer is over the threshold: classes are paused */
	struct worker *worker;
	struct qp **qps;
	uint32_t qp_count, qp_room; /* in the order of their numbers */
	uint32_t qp_first, qp_next; /* of numbers so many are before the first one's, and are taken (transport/qp.c) */
	int netdev;
	char netdev_name[16];
	bool netdev_paused;
	uint64_t netdev_drops;
	struct vport tx_rdma, rx_rdma;
#define COUNTER(field, name, unit, sort, meaning) uint64_t field;
#define VALUE(expression, name, unit, sort, meaning)
#include "nic/counters.def"
	struct sent sent;
	struct puller *puller; /* whom it lets send, or NULL (cc/puller.c) */
	struct member *member[MEMBER_BUCKETS]; /* of groups that have a number, by that (offload/group.c) */
};

/* The transmit buffer that a frame occupies */
static inline struct tx *tx_of(const struct frame *fr)
{
	return (struct tx *)fr->tx_buffer;
}

/* Who takes the packets that have come in whole and right: transport/ and offload/ */
struct nic_receivers {
	void (*transport)(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up);
	void (*datagram)(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr, bool scale_up);
	/* likewise, but only its beginning is left */
	void (*trimmed)(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr);
	bool (*offload)(struct fabric *f, struct nic *n, const struct roce_packet *pkt, struct frame *fr); /* false: for nobody */
	bool (*domain)(struct fabric *f, struct scale_up *s, struct frame *fr); /* likewise, of the switch of a scale-up domain */
};

extern const struct node_ops nic_ops;
void scale_ups_init(struct fabric *f);
extern const struct tx_buffer_ops nic_tx_buffer_ops;
void nic_loop(struct nic *n);
void nic_fetched(struct fabric *f, struct frame *fr);
void nic_receive(struct fabric *f, struct nic *n, struct frame *fr, bool scale_up);
void nic_tx_ready(struct fabric *f, struct tx *tx, struct tx_source *s);
void nic_tx_forget(struct tx *tx, const struct tx_source *s);
void nic_tx_kick(struct fabric *f, struct tx *tx);
void nic_netdev_readable(struct fabric *f, struct nic *n);

ps_t pcie_write(struct nic *n, ps_t now, uint32_t bytes);
ps_t pcie_read(struct nic *n, ps_t now, uint32_t bytes);
ps_t pcie_read_time(const struct nic *n, ps_t now, uint32_t bytes);

void nic_on_wire(struct fabric *f, struct frame *fr);
void nic_count(struct vport *v, const struct port *p, const struct frame *fr);
uint64_t nic_sent_bytes(const struct nic *n, ps_t t);

bool nic_rx_room(struct fabric *f, struct nic *n, uint32_t bytes);
void nic_pressure(struct fabric *f, struct nic *n);
void nic_drained(struct fabric *f, struct nic *n);
void nic_params_changed(struct fabric *f, struct nic *n);

#endif
