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
	bool used, listening, connected, eof;
	uint16_t port, peer_port;
	uint32_t peer;
	uint8_t *buffer;
	size_t at, len;
};

struct end *end_of(int fd);
void end_tell(int fd, struct end *e, enum kind kind, const void *data, size_t n);
void end_wait(int fd);
bool end_blocks(int fd);
bool end_take(int fd, struct end *e);

#endif
