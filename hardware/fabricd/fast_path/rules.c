/* What went by the fast path, counted for the OpenFlow rules that it would have met
 *
 * `ofproto/trace` says of each table which rule matches, in lines such as
 * " 0. ip,nw_dst=10.0.0.1, priority 100, cookie 0x72"; a rule is known by that line.
 * Flows count for themselves; it is added to their rules when somebody asks, or
 * when a flow is forgotten.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/fabric.h"
#include "link/port.h"
#include "fast_path/flow_cache.h"

#define RULE_BITS 12

static struct rule *rule_of(struct flow_cache *c, const struct node *sw, const char *text, size_t len)
{
	uint32_t hash = 2166136261u ^ sw->index;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)text[i]) * 16777619;
	if (!c->rules)
		c->rules = calloc(1u << RULE_BITS, sizeof(struct rule *));
	if (!c->rules)
		abort();
	struct rule **at = &c->rules[hash >> (32 - RULE_BITS)];
	while (*at && ((*at)->sw != sw || strncmp((*at)->text, text, len) || (*at)->text[len]))
		at = &(*at)->next;
	if (!*at) {
		*at = calloc(1, sizeof **at + len + 1);
		if (!*at)
			abort();
		(*at)->sw = sw;
		memcpy((*at)->text, text, len);
	}
	return *at;
}

/* Does a line name a rule?  "12. MATCH, priority N.."
 * Return: where it begins, or NULL
 */
static const char *names_rule(const char *line, size_t len)
{
	const char *p = line;

	while (*p == ' ')
		p++;
	const char *table = p;
	while (*p >= '0' && *p <= '9')
		p++;
	if (p == table || *p != '.')
		return NULL;
	const char *priority = memmem(p, len - (size_t)(p - line), "priority ", 9);
	return priority ? table : NULL;
}

/* rules_met() - The rules that a flow meets, from what Open vSwitch has told of it */
void rules_met(struct flow_cache *c, struct flow *flow, const char *text)
{
	for (const char *line = text; *line;) {
		size_t len = strcspn(line, "\n");
		const char *rule = names_rule(line, len);
		if (rule) {
			struct rule **rules = realloc(flow->rules, (flow->rule_count + 1) * sizeof(struct rule *));
			if (!rules)
				abort();
			flow->rules = rules;
			rules[flow->rule_count++] = rule_of(c, flow->sw, rule, len - (size_t)(rule - line));
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

/* rules_json() - Of each rule: its switch, the line that names it, packets and bytes that went by the fast path */
json_t *rules_json(struct fabric *f)
{
	struct flow_cache *c = f->flow_cache;
	json_t *list = json_array();

	if (!c || !c->rules)
		return list;
	flow_cache_count(c);
	for (uint32_t i = 0; i < 1u << RULE_BITS; i++)
		for (const struct rule *r = c->rules[i]; r; r = r->next)
			json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "switch", r->sw->name, "rule", r->text,
							      "packets", (json_int_t)r->packets, "bytes", (json_int_t)r->bytes));
	return list;
}

void rules_free(struct flow_cache *c)
{
	for (uint32_t i = 0; c->rules && i < 1u << RULE_BITS; i++)
		while (c->rules[i]) {
			struct rule *r = c->rules[i];
			c->rules[i] = r->next;
			free(r);
		}
	free(c->rules);
}
