/* What the process sleeps on: one epoll set over TAPs, sockets and clients (watch.c). */
#ifndef ENGINE_WATCH_H
#define ENGINE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct fabric;

/* What a file descriptor is: low bits of the data word */
enum watch {
	WATCH_TAP, WATCH_FENCE, WATCH_NETDEV, WATCH_WORKER_LISTEN, WATCH_WORKER, WATCH_CONTROL_LISTEN, WATCH_CONTROL,
	WATCH_READER /* whatever has a `struct reader` */
};

struct reader {
	void (*readable)(struct fabric *f, struct reader *r);
};

bool watch_add(struct fabric *f, int fd, enum watch what, void *object);
void watch_set(struct fabric *f, int fd, enum watch what, void *object, uint32_t events);
void watch_remove(struct fabric *f, int fd);

#endif
