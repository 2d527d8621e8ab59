/* TAP devices. */
#ifndef BASE_TAP_H
#define BASE_TAP_H

#include <stdbool.h>
#include <stddef.h>

#define TAP_MTU 9216 /* of switch ports: any frame and its trailer */

int tap_open(const char *name, char *error, size_t room);
bool tap_up(const char *name, int frames, char *error, size_t room);
int tap_open_in(const char *netns, const char *name, char *error, size_t room);

#endif
