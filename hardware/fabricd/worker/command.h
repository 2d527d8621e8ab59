/* What a worker may say: one command each, its handler and its length (message.c has the table) */
#ifndef WORKER_COMMAND_H
#define WORKER_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

#define DURATION_MAX (1ull << 60) /* ps: thirteen days, of one thing and of the clock */

struct fabric;
struct worker;

enum command {
#define COMMAND(number, name, handle, bytes, more, body) name = number,
#include "worker/commands.def"
#undef COMMAND
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
#define COMMAND(number, name, handle, bytes, more, body) const char *command_##handle(struct message *m);
#include "worker/commands.def"
#undef COMMAND

struct post;
const char *worker_ring(struct message *m, const struct post *what);
void worker_busy(struct worker *w, uint64_t duration);

#endif
