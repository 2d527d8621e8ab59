/* Files and memory whose closing may take long: threads of their own do it (close_later.c). */
#ifndef BASE_CLOSE_LATER_H
#define BASE_CLOSE_LATER_H

#include <stdbool.h>
#include <stddef.h>

#define CLOSE_LATER_MAX 256

bool close_later_start(void);
void close_later(int fd);
void unmap_later(void *base, size_t bytes);
bool close_later_full(void);

#endif
