/* The fast path: what Open vSwitch has decided for a flow is not asked again (flow_cache.c, learning.c, trace.c, tables_watch.c, rules.c). */
#ifndef FAST_PATH_FLOW_CACHE_H
#define FAST_PATH_FLOW_CACHE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "engine/fabric.h"
#include "fast_path/flow_key.h"
#include "fast_path/megaflows.h"
#include "link/ways.h"

struct fabric;
struct frame;
struct view;
struct port;
struct node;

#define BRIDGE_BYTES 16
#define FLOW_COPIES_MAX WAYS_MAX
#define RETRY_NS 100000000 /* wall time until Open vSwitch is asked to talk again */

/* What a frame turned into; copies by their ports */
struct decision {
	struct flow_key before;
	uint16_t copies;
	bool strange; /* more copies than FLOW_COPIES_MAX, or one that no rewriting of headers explains */
	struct flow_copy copy[FLOW_COPIES_MAX];
};

/* An OpenFlow rule that is in a switch: what went by the cache counts for it */
struct rule {
	struct rule *next; /* with the same hash */
	const struct node *sw;
	uint64_t cookie;
	uint64_t packets, bytes;
	char *text; /* as Open vSwitch writes it, without the cookie; NULL: no flow has met it */
	uint16_t priority, match_len;
	uint8_t table;
	uint8_t match[]; /* as OpenFlow writes it */
};

/* How many of a switch's rules look at a field; of the ingress port, also whether one is configured otherwise than others */
struct looked {
	uint32_t source_port, in_port;
};

struct flow_cache {
	uint32_t sample; /* one frame in so many of a flow is checked */
	struct megaflows flows;
	struct hash_trust trust;
	struct looked *looked; /* of each switch */
	uint32_t last_number;
	uint64_t epoch; /* goes up when anything is forgotten */
	uint64_t decided; /* goes up when frames that wait for a decision may go on */
	uint32_t purges; /* of Open vSwitch's own cache, not yet answered: what comes out may follow old rules */
	uint64_t hits, checked, stale, forgotten;
	uint64_t changed; /* times that tables were changed while the clock waited for nobody */
	int folder; /* of Open vSwitch's sockets */
	char (*bridge)[BRIDGE_BYTES]; /* of each switch, by its index */
	struct rule **rules; /* by hash of the cookie */
	struct trace *trace;
	struct tables_watch *watches; /* one for each switch, or NULL */
};

bool flow_cache_key(struct flow_key *key, const struct port *in, const struct frame *fr);
struct flow_cache *flow_cache_new(const char *folder, uint32_t sample, uint32_t switches);
struct flow *flow_cache_forward(struct fabric *f, struct port *in, struct frame *fr, ps_t t);
void flow_cache_carried(struct flow_cache *c, struct flow *flow, const struct frame *fr);
void flow_cache_checks(struct flow_cache *c, struct flow *flow, const struct frame *fr);
void flow_cache_twin_goes(struct flow *flow, const struct frame *twin);
struct frame *flow_copy_of(struct fabric *f, struct frame *fr, const struct flow_key *key, const struct flow_copy *copy,
			   const struct flow_key *mask);
bool flow_cache_awaits(struct fabric *f, const struct port *in, const struct frame *fr, struct flow **flow);
struct flow *flow_cache_learns(struct fabric *f, const struct port *in, const struct frame *fr);
void flow_cache_decided(struct fabric *f, struct flow *flow, struct decision *d);
const struct flow *flow_cache_asked(struct fabric *f, const struct flow_key *key, uint32_t number);
void flow_cache_explained(struct fabric *f, const struct flow_key *key, uint32_t number, struct answer *answer);
void flow_cache_changed(struct fabric *f, const struct node *sw);
void flow_cache_forget(struct fabric *f, const struct node *sw);
void flow_cache_settled(struct fabric *f);
void flow_cache_count(struct flow_cache *c);
void flow_cache_free(struct fabric *f);

void rules_heard(struct flow_cache *c, const struct node *sw, struct view *v);
void rules_lost(struct flow_cache *c, const struct node *sw);
void rules_met(struct flow_cache *c, struct flow *flow, const char *text);
void rules_count(struct flow *flow);
void rules_free(struct flow_cache *c);
json_t *rules_json(struct fabric *f);

struct ways *flow_ways(const struct flow *flow);

void decision_begin(struct decision *d, const struct port *in, const struct frame *before);
void decision_add(struct fabric *f, struct decision *d, struct frame *before, uint16_t port, const struct frame *after);

int local_connect(int folder, const char *name, const char *suffix);
bool trace_ready(struct fabric *f);
bool trace_ask(struct fabric *f, const struct flow *flow, const struct flow_key *key);
void trace_free(struct fabric *f);
bool trace_purge(struct fabric *f);
bool tables_watched(struct fabric *f, struct node *sw);
bool tables_watch_begins(const struct flow_cache *c, const struct node *sw);
void tables_read(struct fabric *f, const struct node *sw);
void tables_settled(struct fabric *f);
void tables_unwatch(struct fabric *f);

#endif
