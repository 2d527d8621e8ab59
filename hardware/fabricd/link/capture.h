/* Captures of what goes over cables, as pcapng files (capture.c) */
#ifndef LINK_CAPTURE_H
#define LINK_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fabric;
struct port;

const char *capture_start(struct fabric *f, struct port *p, const char *path, FILE *file);
const char *capture_stop(struct fabric *f, const char *path);
void capture_frame(struct fabric *f, struct port *p, const uint8_t *data, uint32_t len, bool outgoing);
void captures_close(struct fabric *f);

#endif
