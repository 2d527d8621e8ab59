/* Memory that workers register (region.c). */
#ifndef WORKER_REGION_H
#define WORKER_REGION_H

#include <stdint.h>

struct fabric;

uint8_t *region_map(const struct fabric *f, int fd, uint64_t bytes);

#endif
