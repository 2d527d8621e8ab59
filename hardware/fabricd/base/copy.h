/* Copies of payload.
 *
 * libc's memcpy() takes `rep movsb` from 2 KiB on (on x86), which starts slowly: for a packet whose place is not in the
 * cache it takes up to twice as long as moves of single lines.
 */
#ifndef COPY_H
#define COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void copy_payload(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (; bytes >= 64; bytes -= 64, to += 64, from += 64)
		memcpy(to, from, 64);
	memcpy(to, from, bytes);
}

#endif
