/* Emulated time, in picoseconds: a byte at 400 Gb/s takes 20 of them. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdint.h>

typedef int64_t ps_t;
#define PS_NEVER INT64_MAX
#define PS_PER_NS 1000
#define PS_PER_US 1000000
#define PS_PER_S 1000000000000LL

#endif
