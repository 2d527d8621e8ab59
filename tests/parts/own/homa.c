/* fabricd's homa.c written against railbed.h: it must give the same figures */
#include "railbed.h"

enum { WINDOW };

static void arrived(const struct railbed_arrival *a, struct railbed_claim *claim)
{
	claim->owed = fmin(a->wants, a->parameter[WINDOW] - a->under_way);
	claim->rank = a->rest;
	claim->stays = a->rest > 0;
}

RAILBED_CONTROL(2,
	.summary = "the message that has least left goes first", .hears = RAILBED_CREDIT, .by_message = true,
	.parameters = {[WINDOW] = {"window", RAILBED_SIZE, {1, RAILBED_BDP}, 1, 0, "bytes granted and not come at most"}},
	.arrived = arrived);
