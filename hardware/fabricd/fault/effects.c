/* What a fault does to a frame: one function an effect, and a line in the table at the end
 *
 * Which frames it happens to is the rule's matter (frames.c).  A function changes the frame, or says in its fate what
 * becomes of it on the cable.
 */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/units.h"
#include "engine/fabric.h"
#include "fault/effects.h"
#include "fault/fault.h"
#include "link/frame.h"
#include "link/impairment.h"
#include "wire/ethernet.h"
#include "wire/ip.h"
#include "wire/roce.h"

#define TOS_AT (ETH_BYTES + 1)
#define BTH_AT (ETH_BYTES + IPV4_BYTES + UDP_BYTES)

struct frame_effect {
	const char *name;
	bool (*strike)(const struct strike *s); /* Return: whether anything was done, which counts as a hit */
};

/* What a draw is for, and at which of the rule's ports */
static uint64_t drawn_for(const struct watched *at, enum random_use use)
{
	return (uint64_t)(at->place - 1) << 8 | use;
}

/* fault_bits() - 64 random bits for the frame that a port's rule looks at */
uint64_t fault_bits(const struct fabric *f, const struct fault *x, const struct watched *at, enum random_use use)
{
	return random_of(f->seed, x->number, at->seen, drawn_for(at, use));
}

/* fault_draw() - Likewise a number in [0, 1) */
double fault_draw(const struct fabric *f, const struct fault *x, const struct watched *at, enum random_use use)
{
	return random_unit(f->seed, x->number, at->seen, drawn_for(at, use));
}

/* It has been on the cable, and is counted at the far end */
static bool drop(const struct strike *s)
{
	s->fate->dropped = true;
	s->fate->shown = s->fault->rule.shown;
	return true;
}

/* Turn one bit of the payload; silently, only where there is data.  Return: whether it was done */
static bool flip(const struct strike *s, bool silent)
{
	struct frame *fr = s->fr;

	frame_whole(s->f, fr);
	uint32_t from = BTH_AT + BTH_BYTES, to = fr->len > ICRC_BYTES ? fr->len - ICRC_BYTES : fr->len;
	uint64_t draw = fault_bits(s->f, s->fault, s->at, RANDOM_BITS);

	if (silent && is_ipv4(fr->data, fr->len)) { /* behind RETH: the data */
		uint32_t ip_bytes = (uint32_t)(fr->data[ETH_BYTES + 2] << 8 | fr->data[ETH_BYTES + 3]);
		from += roce_has_reth(fr->data[BTH_AT]) ? RETH_BYTES : 0;
		from += roce_has_imm(fr->data[BTH_AT]) ? IMM_BYTES : 0;
		if (ETH_BYTES + ip_bytes > fr->len || ETH_BYTES + ip_bytes < from + ICRC_BYTES + 1)
			return false;
		if (fr->data[BTH_AT] == RC_ACK || fr->data[BTH_AT] == RC_CNP)
			return false;
		to = ETH_BYTES + ip_bytes - ICRC_BYTES;
	}
	if (to <= from)
		from = to - 1;
	fr->data[from + draw % (to - from)] ^= (uint8_t)(1u << (draw >> 32) % 8);
	if (silent)
		roce_set_icrc(fr->data, to + ICRC_BYTES);
	return true;
}

/* A port that retries sees it before anybody else does */
static bool corrupt(const struct strike *s)
{
	s->fate->damaged = true;
	return s->retries || flip(s, false);
}

/* Where it comes in nobody counts its credits */
static bool leak_credits(const struct strike *s)
{
	return s->fr->uncounted = true;
}

static bool corrupt_silent(const struct strike *s)
{
	return flip(s, true);
}

/* The copy comes in right behind the original */
static bool duplicate(const struct strike *s)
{
	s->fate->duplicates++;
	return true;
}

/* It holds up those behind it, unless the rule reorders */
static bool delay(const struct strike *s)
{
	const struct frame_rule *r = &s->fault->rule;

	s->fate->delay += r->delay + (ps_t)(fault_draw(s->f, s->fault, s->at, RANDOM_DELAY) * (double)r->jitter);
	s->fate->reorder = s->fate->reorder || r->reorder;
	return true;
}

static bool set_dscp(const struct strike *s)
{
	uint8_t *data = s->fr->data;

	if (is_ipv4(data, s->fr->len))
		ip_set_tos(data, (uint8_t)(s->fault->rule.dscp << 2 | (data[TOS_AT] & ECN_CE)));
	return true;
}

static bool clear_ecn(const struct strike *s)
{
	uint8_t *data = s->fr->data;

	if (is_ipv4(data, s->fr->len) && (data[TOS_AT] & ECN_CE) == ECN_CE)
		ip_set_tos(data, (uint8_t)((data[TOS_AT] & ~ECN_CE) | ECN_ECT0));
	return true;
}

/* The effects by name; what is said of each goes into docs/fabricd-protocol.md (python -m hardware.protocol) */
static const struct frame_effect effects[] = {
#define EFFECT(name, keys) {#name, name},
	EFFECT(drop, "counted with reason `fault` at the far end, and in `shown` of `counters` as `shown` says: crc, acl, meter, or silent, the default")
	EFFECT(corrupt, "the ICRC no longer fits")
	EFFECT(corrupt_silent, "it does")
	EFFECT(leak_credits, "of a cable under credits: they are not counted where it comes in, and so never come back")
	EFFECT(duplicate, "")
	EFFECT(delay, "`delay_ns`, `jitter_ns`, `reorder`")
	EFFECT(set_dscp, "`dscp`")
	EFFECT(clear_ecn, "")
#undef EFFECT
};

#define EFFECTS (sizeof effects / sizeof effects[0])

/* effect_find() - The effect of that name, or NULL */
const struct frame_effect *effect_find(const char *name)
{
	for (size_t i = 0; i < EFFECTS; i++)
		if (name && !strcmp(name, effects[i].name))
			return &effects[i];
	return NULL;
}

/* effects_listed() - What may be asked for, as an error says it */
const char *effects_listed(void)
{
	static char text[256];
	size_t n = (size_t)snprintf(text, sizeof text, "inject: effect: ");

	for (size_t i = 0; i < EFFECTS && n < sizeof text; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
				      !i ? "" : i + 1 < EFFECTS ? ", " : " or ", effects[i].name);
	return text;
}

/* effect_strike() - It happens to a frame that the fault has picked
 * Return: whether anything was done
 */
bool effect_strike(const struct strike *s)
{
	return s->fault->rule.effect->strike(s);
}
