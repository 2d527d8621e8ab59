/* Notes: what the two ends of a cable tell each other between frames (notes.c) */
#ifndef LINK_NOTES_H
#define LINK_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct fabric;
struct port;

/* What a note says; those that a port owes are bits of port.owed.  Of the first two there is one for each class */
enum note {
	NOTE_LIMIT = 0,	 /* credits: so many blocks may be sent in all (FCCL) */
	NOTE_TOTAL = 8,	 /* credits: so many blocks have been sent in all (FCTBS) */
	NOTE_ACK = 16,	 /* retry: so many bytes have come in, in order */
	NOTE_NACK,	 /* retry: what came next was damaged */
	NOTES
};

void notes_owe(struct fabric *f, struct port *p, unsigned note);
void notes_send(struct fabric *f, struct port *p);
void notes_receive(struct fabric *f, struct port *p, unsigned note, uint64_t value, uint32_t epoch);

#endif
