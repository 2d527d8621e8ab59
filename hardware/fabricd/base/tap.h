/* TAP devices. */
#ifndef BASE_TAP_H
#define BASE_TAP_H

#include <stdbool.h>
#include <stddef.h>

int tap_open(const char *name, char *error, size_t room);
bool tap_queue(const char *name, int frames, char *error, size_t room);
int tap_open_in(const char *netns, const char *name, char *error, size_t room);

#endif
