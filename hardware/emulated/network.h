/* Sockets of the management network: an end of a connection, or one that listens (network.c) */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST 65536 /* bytes of a packet */

enum kind { DATA, HELLO, END };
struct packet {
	uint64_t arrives;
	uint32_t kind, bytes, rank;
	uint16_t port, zero;
};

struct end {
	bool used, listening, connecting, tried, connected, eof;
	int error; /* of a connection that came to nothing: SO_ERROR */
	uint16_t port, peer_port;
	uint32_t peer;
	uint64_t began, due; /* while it connects: since when, and when something happens next */
	int *pending;	     /* who wants to be accepted by this listener, in the order of the kernel */
	int pendings;
	uint8_t *buffer;
	size_t at, len;
};

/* network.c */
struct end *end_of(int fd);
struct end *end_new(int fd);
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n, uint64_t arrives);
int end_first(int fd, struct packet *h);
void end_wait(int fd);
bool end_blocks(int fd);
bool end_take(int fd, struct end *e);

/* connection.c */
bool connection_advance(int fd, struct end *e, uint64_t now, uint64_t *next);
int connection_next(int fd, struct end *e, uint64_t now, uint64_t *next);

#endif
