/* What a worker may say: one command each, its handler and its length (message.c has the table) */
#ifndef WORKER_COMMAND_H
#define WORKER_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

struct fabric;
struct worker;

enum command {
	HELLO = 1, REGISTER, CONNECT, POST_SEND, POST_RECV, COMPUTE, SPEND, WAIT, SYNC, PROGRESS, BYE,
	GROUP, POST_OFFLOAD, LEAVE,
};

struct message {
	struct fabric *f;
	struct worker *w;
	struct view v; /* body of the command */
	int memfd;     /* came with the packet, or -1 */
	bool alone;    /* the command is the whole packet */
	bool last;
	bool took; /* the memfd */
};

/* Each returns NULL, or what is wrong with the command */
const char *command_hello(struct message *m);
const char *command_register(struct message *m);
const char *command_connect(struct message *m);
const char *command_bye(struct message *m);
const char *command_post_offload(struct message *m);
const char *command_post_send(struct message *m);
const char *command_post_recv(struct message *m);
const char *command_compute(struct message *m);
const char *command_spend(struct message *m);
const char *command_wait(struct message *m);
const char *command_sync(struct message *m);
const char *command_progress(struct message *m);
const char *command_group(struct message *m);
const char *command_leave(struct message *m);

void worker_busy(struct worker *w, uint64_t duration);

#endif
