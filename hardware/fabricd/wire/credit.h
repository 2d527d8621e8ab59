/* What senders and receivers say of credit (credit.c) */
#ifndef WIRE_CREDIT_H
#define WIRE_CREDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEMAND_BYTES 16 /* behind a data packet */
#define CREDIT_BYTES 16 /* payload of credits and requests */

/* What a sender says.  Numbers count bytes since the queue pair is connected, modulo 2^32 */
struct demand {
	bool present;
	uint32_t target; /* that it would like to be granted up to */
	uint32_t known;	 /* that it was granted up to, as far as it knows; only in requests */
	uint32_t end;	 /* that it needs to be granted up to, for all it has to send */
	uint32_t rest;	 /* bytes of that which have not left, credit or not */
};

uint32_t demand_append(uint8_t *frame, uint32_t len, const struct demand *d);
struct demand demand_read(const uint8_t *frame, size_t len, uint32_t away);
void request_write(uint8_t *payload, const struct demand *d);
struct demand request_read(const uint8_t *payload, size_t bytes);
void credit_write(uint8_t *payload, uint32_t granted);
bool credit_read(const uint8_t *payload, size_t bytes, uint32_t *granted);

#endif
