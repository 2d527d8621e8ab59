/* Lines of an answer of `ofproto/trace` (trace_text.c). */
#ifndef FAST_PATH_TRACE_TEXT_H
#define FAST_PATH_TRACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

bool trace_line_is_caption(const char *line, size_t len);
bool trace_tells_ports_apart(const char *text);

#endif
