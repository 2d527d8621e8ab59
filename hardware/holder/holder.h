/* The process that holds a fabric's network namespaces: see main.c */
#ifndef HOLDER_H
#define HOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define USERS 100  /* a host process's descriptor of its user namespace; testbed/containers/container.py names it too */
#define IDS 65535l /* users of a user namespace */
#define ERROR_ROOM 512

/* why a system call has failed, in words; always false */
bool failed(char *error, const char *what);

/* namespace.c */
bool network_enter(char *error);
bool network_enter_of(long ids);
bool mounts_own(char *error);

/* interface.c */
bool interface_up(const char *name, char *error);
void interfaces_configure(const json_t *wanted, char *error);

/* host.c */
struct host {
	const char *name; /* the question's */
	int pid;
	int channel;
	bool asked;
	bool users; /* its network belongs to a user namespace */
};

bool host_start(struct host *h, long ids, char *error);
void host_started(struct host *h, char *error);
bool host_ask(const struct host *h, const json_t *wanted);
void host_answer(const struct host *h, char *error);

/* sweep.c */
void sweep(const char *group);

#endif
