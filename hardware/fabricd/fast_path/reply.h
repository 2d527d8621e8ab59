/* Answers of Open vSwitch's control socket, as they come in (reply.c). */
#ifndef FAST_PATH_REPLY_H
#define FAST_PATH_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replies {
	char *text;
	size_t have, room;
	size_t first, seen; /* where the next answer begins, and up to where it was looked at */
	uint32_t depth;	    /* of objects there */
	bool quoted, escaped;
};

struct reply {
	uint64_t id;
	char *result; /* NULL: it has none, or one that is no text */
};

char *replies_room(struct replies *r, size_t *room);
void replies_came(struct replies *r, size_t bytes);
bool replies_next(struct replies *r, struct reply *reply);
void replies_forget(struct replies *r);
void replies_free(struct replies *r);

#endif
