/* Frames (frame.c), payload that is lent to them (lent.c), and their way through a switch.
 *
 * A small frame has room for headers.  A full one has a buffer of `fabric.frame_room` bytes besides.  What a queue pair
 * sends is a small frame whose payload stays in the sender's memory until it is delivered, or somebody looks.  A frame
 * that is on its way to a switch has a passage, which its copies share.
 */
#ifndef LINK_FRAME_H
#define LINK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lines.h"
#include "base/units.h"
#include "wire/ethernet.h"
#include "wire/roce.h"

struct fabric;
struct port;
struct tx_source;

#define CLASS_DEFAULT 0
#define TRAILER_BYTES 16
#define FRAME_HEAD_BYTES 192 /* all headers, a block of telemetry, a VLAN tag, the trailer */

struct frame;

/* Who has lent payload: the frames that have not come to their end yet, by their numbers */
struct lender {
	struct frame *first, *last;
};

/* A NIC's transmit buffer: a frame has its place there until it is on the wire, or dropped (nic/nic.c fills the table in) */
struct tx_buffer {
	const struct tx_buffer_ops *ops;
};

struct tx_buffer_ops {
	bool (*passes)(struct fabric *f, struct frame *fr);  /* the port would send it: may it go?  If not, it is deferred */
	void (*on_wire)(struct fabric *f, struct frame *fr); /* it starts on the cable */
	void (*freed)(struct fabric *f, struct frame *fr);   /* it gives its place up */
};

/* First a line that every port on its way looks at, then one for its ends, then its headers */
struct frame {
	_Alignas(LINE_BYTES) struct frame *next;
	uint8_t *data;	   /* its bytes: `head`, or a buffer of fabric.frame_room bytes */
	uint64_t id;	   /* in order of creation, kept by copies */
	struct passage *passage; /* through the switch that it is in, or on its way to */
	struct passage *cut; /* on its way: the switch that it left before it had come in there as a whole, or NULL */
	struct tx_buffer *tx_buffer; /* that it occupies, or NULL */
	uint32_t len;	   /* without FCS and trailer */
	uint16_t away;	   /* of these bytes: not in `data`, but between its headers and its telemetry */
	uint16_t payload;  /* of a queue pair's: bytes of payload in it */
	uint8_t class;
	uint8_t refs;	   /* of a frame on its way to a switch: the event of its arrival, and Open vSwitch */
	bool unsealed;	   /* made here, and its ICRC is not computed yet */
	bool pause;	   /* a MAC control frame: meant for the port at the other end of the cable */
	bool uncounted;	   /* its credits are not counted where it comes in, and so never come back */
	bool bad;	   /* its checksum is wrong */
	bool early;	   /* in its NIC: it has waited for its time, and joins its queue before those that have not */
	bool asks : 1;	   /* of a queue pair's: to be acknowledged */
	bool response : 1; /* likewise: to a READ, and none of its own packets */
	bool data_of_worker : 1; /* of a NIC's worker: counted as sent when it goes onto the wire */
	struct tx_source *from; /* who sends it, or NULL: told when it goes onto the wire */
	uint64_t number;   /* of a queue pair's: which of its packets it is */
	const void *taker; /* who will look at it at its end, so that he is brought near; nothing else may depend on it */
	struct port *to;   /* scale-up domain: where it comes in, a NIC or the domain's switch */
	const uint8_t *lent; /* its payload, in its sender's memory */
	struct lender *lender;
	struct frame *older, *newer; /* lent by the same */
	uint8_t head[FRAME_HEAD_BYTES];
};
_Static_assert(offsetof(struct frame, head) == 2 * LINE_BYTES && sizeof(struct frame) % LINE_BYTES == 0, "frames are small");

/* What of a frame is in `data` */
static inline uint32_t frame_near(const struct frame *fr)
{
	return fr->len - fr->away;
}

/* Its place in the transmit buffer is free */
static inline void frame_off_buffer(struct fabric *f, struct frame *fr)
{
	if (fr->tx_buffer)
		fr->tx_buffer->ops->freed(f, fr);
}

/* A frame's way through one switch: shared by the frame that comes in and the copies that leave */
struct passage {
	_Alignas(LINE_BYTES) struct passage *next;
	struct port *in;
	ps_t t_in;	/* when its last bit comes in */
	ps_t through;	/* when it has gone through the pipeline */
	uint32_t bytes, refs;
	uint32_t blocks; /* credits that are free again behind it */
	uint32_t ahead; /* copies that are on their way to where they go, and started before t_in */
	uint8_t class;	/* by its DSCP as it came in */
	bool admitted;	/* occupies the buffer */
	bool trims;	/* there was no room for all of it: it leaves trimmed */
	bool bad;	/* it has come in with a wrong checksum, or not to its end */
	bool lost;	/* the cable was cut before it came in, or there was no room: nothing leaves */
};

struct frame *frame_new(struct fabric *f);
struct frame *frame_small(struct fabric *f);
struct frame *frame_twin(struct fabric *f, struct frame *fr);
void frame_grow(struct fabric *f, struct frame *fr);
void frame_release(struct fabric *f, struct frame *fr);
struct passage *passage_new(struct fabric *f, struct port *in, ps_t t_in, uint32_t bytes);
struct passage *passage_join(struct passage *passage);
void passage_leave(struct fabric *f, struct frame *fr);
void passage_cut(struct fabric *f, struct frame *fr);
void passage_ends(struct fabric *f, struct frame *fr);
void frames_close(struct fabric *f);

void frame_lend(struct frame *fr, struct lender *l, const uint8_t *payload, uint32_t bytes);
void frame_whole(struct fabric *f, struct frame *fr);
void frame_cut(struct fabric *f, struct frame *fr, uint32_t len);
enum roce_verdict frame_parse(const struct frame *fr, struct roce_packet *pkt);
void lent_follow(struct frame *fr, struct frame *copy);
void lent_end(struct frame *fr);
void lender_recall(struct fabric *f, struct lender *l, uint64_t end);

#endif
