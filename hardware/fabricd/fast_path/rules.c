/* What went by the fast path, counted for the OpenFlow rules that it would have met
 *
 * Theory of Operation
 *
 * A rule counts as it would in Open vSwitch, whichever way its frames go: from its
 * beginning to its end.  One that is deleted and put in again begins at zero; one
 * that is written over, with other actions or another cookie, goes on counting.  So
 * the rules of a switch are known here as its flow monitor tells of them
 * (tables_watch.c): when each is added, modified, removed.  A rule is known by its
 * table, its priority and its match, in OpenFlow's bytes.
 *
 * `ofproto/trace` says of each table which rule a flow matches, in lines such as
 * " 0. ip,nw_dst=10.0.0.1, priority 100, cookie 0x72".  Which of the rules that is,
 * table, priority and cookie tell: a controller's cookies are all different.  Of
 * several alike it is one that no other line has named yet.
 *
 * Flows count for themselves; it is added to their rules when somebody asks, or
 * when a flow is forgotten.  Before a switch's rules change, its flows are forgotten.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/fabric.h"
#include "link/port.h"
#include "fast_path/flow_cache.h"

#define RULE_BITS 14
#define RULE_BUCKETS (1u << RULE_BITS)

/* Of a flow monitor (OpenFlow 1.5, 7.3.5.17.3) */
enum update {
	UPDATE_INITIAL = 0,
	UPDATE_ADDED = 1,
	UPDATE_REMOVED = 2,
	UPDATE_MODIFIED = 3,
};

/* What makes a rule this one */
struct identity {
	const struct node *sw;
	uint8_t table;
	uint16_t priority;
	const uint8_t *match;
	uint16_t match_len;
};

/* Where rules with that cookie hang */
static struct rule **bucket(struct flow_cache *c, const struct node *sw, uint64_t cookie)
{
	uint64_t hash = (cookie ^ (uint64_t)sw->index << 48) * 0x9e3779b97f4a7c15u;

	if (!c->rules)
		c->rules = calloc(RULE_BUCKETS, sizeof(struct rule *));
	if (!c->rules)
		abort();
	return &c->rules[hash >> (64 - RULE_BITS)];
}

static struct rule **find_in(struct rule **at, const struct identity *id)
{
	for (; *at; at = &(*at)->next)
		if ((*at)->sw == id->sw && (*at)->table == id->table && (*at)->priority == id->priority &&
		    (*at)->match_len == id->match_len && !memcmp((*at)->match, id->match, id->match_len))
			break;
	return at;
}

/* The rule, which may have had another cookie by now
 * Return: where it hangs, or where there is none
 */
static struct rule **find(struct flow_cache *c, const struct identity *id, uint64_t cookie)
{
	struct rule **at = find_in(bucket(c, id->sw, cookie), id);

	for (uint32_t i = 0; !*at && i < RULE_BUCKETS; i++)
		at = find_in(&c->rules[i], id);
	return at;
}

static void hang(struct flow_cache *c, struct rule *r, uint64_t cookie)
{
	struct rule **at = bucket(c, r->sw, cookie);

	r->cookie = cookie;
	r->next = *at;
	*at = r;
}

static struct rule *take_off(struct rule **at)
{
	struct rule *r = *at;

	*at = r->next;
	return r;
}

/* What a match looks at.  UDP source ports and those of other protocols are the same field to Open vSwitch */
static struct looked looks_at(const uint8_t *match, size_t len)
{
	enum { NXM_0 = 0, BASIC = 0x8000, IN_PORT = 0, NXM_TCP_SRC = 9, NXM_UDP_SRC = 11, TCP_SRC = 13, UDP_SRC = 15, SCTP_SRC = 17 };
	struct view v = view_of(match, len);
	struct looked at = {0};

	while (v.left) {
		uint16_t class = get_be16(&v);
		uint8_t field = get_u8(&v) >> 1;
		view_take(&v, get_u8(&v));
		at.in_port |= v.bad || ((class == NXM_0 || class == BASIC) && field == IN_PORT);
		at.source_port |= v.bad || (class == NXM_0 && (field == NXM_TCP_SRC || field == NXM_UDP_SRC)) ||
				  (class == BASIC && (field == TCP_SRC || field == UDP_SRC || field == SCTP_SRC));
	}
	return at;
}

static void rule_free(struct flow_cache *c, struct rule *r)
{
	struct looked at = looks_at(r->match, r->match_len);

	c->looked[r->sw->index].source_port -= at.source_port;
	c->looked[r->sw->index].in_port -= at.in_port;
	free(r->text);
	free(r);
}

static void added(struct flow_cache *c, const struct identity *id, uint64_t cookie)
{
	struct looked at = looks_at(id->match, id->match_len);
	struct rule *r = calloc(1, sizeof *r + id->match_len);

	if (!r)
		abort();
	r->sw = id->sw;
	r->table = id->table;
	r->priority = id->priority;
	r->match_len = id->match_len;
	memcpy(r->match, id->match, id->match_len);
	c->looked[r->sw->index].source_port += at.source_port;
	c->looked[r->sw->index].in_port += at.in_port;
	hang(c, r, cookie);
}

static void updated(struct flow_cache *c, const struct node *sw, enum update what, struct view v)
{
	struct identity id = {.sw = sw, .table = get_u8(&v)};

	view_take(&v, 5); /* the reason, timeouts */
	id.priority = get_be16(&v);
	view_take(&v, 4);
	uint64_t cookie = get_be64(&v);
	view_take(&v, 2); /* the type of the match: there is one */
	uint16_t length = get_be16(&v);
	if (v.bad || length < 4)
		return;
	id.match_len = (uint16_t)(length - 4);
	id.match = view_take(&v, id.match_len);
	if (!id.match)
		return;
	struct rule **at = what == UPDATE_INITIAL ? find_in(bucket(c, sw, cookie), &id) : find(c, &id, cookie);
	if (!*at && what != UPDATE_REMOVED)
		added(c, &id, cookie);
	else if (*at && what == UPDATE_REMOVED)
		rule_free(c, take_off(at));
	else if (*at)
		hang(c, take_off(at), cookie); /* an `add` that replaces a rule is reported as an added one, too */
}

/* rules_heard() - A switch's flow monitor tells of rules; the switch's flows are forgotten already
 * @v:	The updates, one after another
 */
void rules_heard(struct flow_cache *c, const struct node *sw, struct view *v)
{
	while (v->left) {
		uint16_t length = get_be16(v), what = get_be16(v);
		const uint8_t *rest = length < 4 ? NULL : view_take(v, length - 4u);
		if (!rest)
			return;
		if (what <= UPDATE_MODIFIED)
			updated(c, sw, what, view_of(rest, length - 4u));
	}
}

/* rules_lost() - Of a switch's rules nothing is heard any more (NULL: of all); no flow meets them */
void rules_lost(struct flow_cache *c, const struct node *sw)
{
	for (uint32_t i = 0; c->rules && i < RULE_BUCKETS; i++)
		for (struct rule **at = &c->rules[i]; *at;)
			if (!sw || (*at)->sw == sw)
				rule_free(c, take_off(at));
			else
				at = &(*at)->next;
}

/* The rule that a line names: "12. MATCH, priority N", and ", cookie 0xN" unless that is 0
 * Return: NULL if it names none that is known
 */
static struct rule *rule_of(struct flow_cache *c, const struct node *sw, const char *line, size_t len)
{
	static const char before_priority[] = "priority ", before_cookie[] = ", cookie 0x";

	size_t spaces = strspn(line, " "), digits = strspn(line + spaces, "0123456789");
	const char *priority = memmem(line, len, before_priority, sizeof before_priority - 1);
	char *end;
	if (!digits || line[spaces + digits] != '.' || !priority)
		return NULL;
	line += spaces;
	uint32_t table = (uint32_t)strtoul(line, NULL, 10);
	uint32_t number = (uint32_t)strtoul(priority + sizeof before_priority - 1, &end, 10);
	size_t text_len = (size_t)(end - line);
	uint64_t cookie = 0;
	if (!strncmp(end, before_cookie, sizeof before_cookie - 1))
		cookie = strtoull(end + sizeof before_cookie - 1, NULL, 16);

	struct rule *unnamed = NULL;
	for (struct rule *r = *bucket(c, sw, cookie); r; r = r->next) {
		if (r->sw != sw || r->table != table || r->priority != number || r->cookie != cookie)
			continue;
		if (!r->text)
			unnamed = r;
		else if (!strncmp(r->text, line, text_len) && !r->text[text_len])
			return r;
	}
	if (unnamed && !(unnamed->text = strndup(line, text_len)))
		abort();
	return unnamed;
}

/* rules_met() - The rules that a flow meets, from what Open vSwitch has told of it */
void rules_met(struct flow_cache *c, struct flow *flow, const char *text)
{
	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n");
		struct rule *rule = rule_of(c, flow->sw, line, len);
		if (rule) {
			struct rule **rules = realloc(flow->rules, (flow->rule_count + 1) * sizeof(struct rule *));
			if (!rules)
				abort();
			flow->rules = rules;
			rules[flow->rule_count++] = rule;
		}
		line += len + (line[len] == '\n');
	}
}

/* rules_count() - What a flow has counted is its rules' */
void rules_count(struct flow *flow)
{
	for (uint32_t i = 0; i < flow->rule_count; i++) {
		flow->rules[i]->packets += flow->packets;
		flow->rules[i]->bytes += flow->bytes;
	}
	flow->packets = flow->bytes = 0;
}

/* rules_json() - Of each rule that a flow has met: its switch, the line that names it, packets and bytes that went by the fast path */
json_t *rules_json(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;
	json_t *list = json_array();

	if (!c || !c->rules)
		return list;
	tables_settled(f); /* what was deleted by now counts no more */
	flow_cache_count(c);
	for (uint32_t i = 0; i < RULE_BUCKETS; i++)
		for (const struct rule *r = c->rules[i]; r; r = r->next)
			if (r->text)
				json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "switch", r->sw->name, "rule",
								      r->text, "packets", (json_int_t)r->packets, "bytes",
								      (json_int_t)r->bytes));
	return list;
}

void rules_free(struct flow_cache *c)
{
	rules_lost(c, NULL);
	free(c->rules);
}
