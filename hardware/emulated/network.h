/* Sockets of the management network: an end of a connection, or one that listens (network.c) */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

#define MOST 65536	     /* bytes of a packet */
#define KERNEL_BUFFER 212992 /* of a socket: the kernel grants anybody as much, and doubles it */

enum kind { DATA, HELLO, END, ACK };
struct packet {
	uint64_t arrives;
	uint32_t kind, bytes, rank; /* bytes of an acknowledgement: the weight of what was read */
	uint16_t port, zero;
};

/* A packet that has been taken in, with its bytes behind it */
struct got {
	struct got *next;
	struct packet head;
};

struct end {
	bool used, listening, connecting, tried, connected, eof;
	int error; /* of a connection that came to nothing: SO_ERROR */
	uint16_t port, peer_port;
	uint32_t peer;
	uint64_t began, due; /* while it connects: since when, and when something happens next */
	int *pending;	     /* who wants to be accepted by this listener, in the order of the kernel */
	int pendings;
	struct got *reading; /* of what is read, the packet, and how far */
	size_t at;
	struct got *unread, *acks; /* in their order */
	size_t under_way;	   /* the weight of what the peer has not read */
	bool gone;		   /* nothing comes after that */
};

/* network.c */
extern struct lock network_lock; /* of what all ends have: one may be read, written, polled and closed by four threads */
struct end *end_of(int fd);
struct end *end_new(int fd);
void end_wait(int fd);
bool end_blocks(int fd);

/* packets.c */
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n, uint64_t arrives);
int pending_first(int fd, struct packet *h);
int end_first(int fd, struct end *e, struct packet *h);
bool end_take(int fd, struct end *e);
size_t end_left(const struct end *e);
const uint8_t *end_bytes(const struct end *e);
bool end_has_room(int fd, struct end *e, uint64_t now, uint64_t *next);
bool end_is_broken(struct end *e, uint64_t now);
void end_free(struct end *e);

/* connection.c */
bool connection_advance(int fd, struct end *e, uint64_t now, uint64_t *next);
int connection_next(int fd, struct end *e, uint64_t now, uint64_t *next);

#endif
