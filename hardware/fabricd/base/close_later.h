/* Files and memory whose closing may take long: a thread of its own does it (closer.c). */
#ifndef BASE_CLOSER_H
#define BASE_CLOSER_H

#include <stdbool.h>
#include <stddef.h>

#define CLOSER_MAX 256

bool closer_start(void);
void close_later(int fd);
void unmap_later(void *base, size_t bytes);
bool closer_full(void);

#endif
