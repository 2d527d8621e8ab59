/* Windows of a divided fabric (windows.c), and how it is divided (divide.c). */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;

bool division_load(struct fabric *f);
void division_free(struct fabric *f);
ps_t division_lookahead(const struct fabric *f);
bool windows_wanted(struct fabric *f);
bool windows_step(struct fabric *f, int burst);

#endif
