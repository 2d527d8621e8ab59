/* Answers of Open vSwitch's control socket, as they come in
 *
 * Theory of Operation
 *
 * They are JSON objects, {"id", "result", "error"}, one after another; of ofproto/trace each is a text of some
 * thousand bytes.  Where packets take many paths thousands are read.  So each byte is looked at once to find where an
 * answer ends, however it comes in, within texts eight at a time, and nothing is built of it: the number is read and the text unescaped where they stand.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fast_path/reply.h"

#define ROOM_LEAST (1u << 16)
#define ROOM_MOST (1u << 20)
#define READ_LEAST 4096

/* replies_room() - Where the next bytes are to be read to; NULL: an answer is longer than any */
char *replies_room(struct replies *r, size_t *room)
{
	if (r->first) {
		memmove(r->text, r->text + r->first, r->have - r->first);
		r->have -= r->first;
		r->seen -= r->first;
		r->first = 0;
	}
	if (r->room - r->have < READ_LEAST) {
		size_t more = r->room ? 2 * r->room : ROOM_LEAST;
		char *grown = more > ROOM_MOST ? NULL : realloc(r->text, more + 1);
		if (!grown)
			return NULL;
		r->text = grown;
		r->room = more;
	}
	*room = r->room - r->have;
	return r->text + r->have;
}

/* replies_came() - So many were */
void replies_came(struct replies *r, size_t bytes)
{
	r->have += bytes;
}

/* Does one of eight bytes equal a character? */
static inline uint64_t equal_bytes(uint64_t eight, char c)
{
	uint64_t x = eight ^ 0x0101010101010101 * (uint8_t)c;

	return (x - 0x0101010101010101) & ~x & 0x8080808080808080;
}

/* Where a quote or a backslash is, from @p on, or @end */
static char *special(char *p, const char *end)
{
	for (uint64_t eight; end - p >= 8; p += 8) {
		memcpy(&eight, p, 8);
		if (equal_bytes(eight, '"') | equal_bytes(eight, '\\'))
			break;
	}
	while (p < end && *p != '"' && *p != '\\')
		p++;
	return p;
}

/* Look on to the end of the answer.  Return: whether it is there */
static bool ended(struct replies *r)
{
	char *end = r->text + r->have;

	while (r->seen < r->have) {
		if (r->quoted && !r->escaped)
			r->seen = (size_t)(special(r->text + r->seen, end) - r->text);
		if (r->seen == r->have)
			break;
		char c = r->text[r->seen++];
		if (r->quoted) {
			r->quoted = r->escaped || c != '"';
			r->escaped = !r->escaped && c == '\\';
		} else if (c == '"') {
			r->quoted = true;
		} else if (c == '{') {
			r->depth++;
		} else if (c == '}' && r->depth && !--r->depth) {
			return true;
		}
	}
	return false;
}

/* What an escape stands for; of what is not ASCII a question mark */
static char unescaped(char **p, const char *end)
{
	char c = *(*p)++, hex[5] = "";

	switch (c) {
	case 'n': return '\n';
	case 't': return '\t';
	case 'r': return '\r';
	case 'b': return '\b';
	case 'f': return '\f';
	case 'u': break;
	default: return c;
	}
	for (int i = 0; i < 4 && *p < end && isxdigit((unsigned char)**p); i++)
		hex[i] = *(*p)++;
	unsigned long code = strtoul(hex, NULL, 16);
	return code && code < 0x80 ? (char)code : '?';
}

/* A text, whose first quote is at @p, becomes what it says.  Return: what comes behind it */
static char *text_at(char *p, char *end, char **text)
{
	char *to = *text = ++p;

	for (;;) {
		char *plain = p;
		p = special(p, end);
		memmove(to, plain, (size_t)(p - plain));
		to += p - plain;
		if (p == end || *p == '"')
			break;
		p++;
		*to++ = p < end ? unescaped(&p, end) : '\\';
	}
	*to = 0; /* on the closing quote, or before it */
	return p < end ? p + 1 : end;
}

/* A value that is no text.  Return: what comes behind it */
static char *skipped(char *p, char *end)
{
	int depth = 0;
	char *within;

	while (p < end && (depth || (*p != ',' && *p != '}'))) {
		depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
		p = *p == '"' ? text_at(p, end, &within) : p + 1;
	}
	return p;
}

/* replies_next() - The next answer, if it is there entirely; it lasts until more is read */
bool replies_next(struct replies *r, struct reply *reply)
{
	if (!ended(r))
		return false;
	char *p = r->text + r->first, *end = r->text + r->seen, *key, *value;

	*reply = (struct reply){0};
	while (p < end && *p != '{')
		p++;
	while (p < end && (p = memchr(p, '"', (size_t)(end - p)))) {
		p = text_at(p, end, &key);
		while (p < end && (*p == ':' || *p == ' '))
			p++;
		if (p < end && *p == '"') {
			p = text_at(p, end, &value);
			if (!strcmp(key, "result"))
				reply->result = value;
			continue;
		}
		if (!strcmp(key, "id"))
			reply->id = strtoull(p, NULL, 10);
		p = skipped(p, end);
	}
	r->first = r->seen;
	return true;
}

/* replies_forget() - What has come belongs to a connection that has ended */
void replies_forget(struct replies *r)
{
	r->have = r->first = r->seen = r->depth = 0;
	r->quoted = r->escaped = false;
}

void replies_free(struct replies *r)
{
	free(r->text);
}
