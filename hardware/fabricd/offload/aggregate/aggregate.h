/* In-network aggregation: a NIC's part (aggregate.c) */
#ifndef OFFLOAD_AGGREGATE_H
#define OFFLOAD_AGGREGATE_H

#include "offload/offload.h"

extern const struct offload_ops aggregate_ops;

#endif
