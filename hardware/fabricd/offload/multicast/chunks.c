/* Chunks of a vector
 *
 * Theory of Operation
 *
 * A vector is the concatenation of parts, each in whole elements; where it does not
 * come out even, the first `longer` parts have one element more.  Every part begins
 * with a chunk of its own, so a chunk belongs to one part; only a part's last chunk
 * may be shorter than `payload`.
 */
#include "offload/multicast/chunks.h"

static uint64_t chunks_of(uint64_t bytes, uint32_t payload)
{
	return (bytes + payload - 1) / payload;
}

/* layout_of() - How a request's vector is cut: @count bytes, in elements of @element bytes */
struct layout layout_of(uint64_t count, uint32_t element, uint32_t payload, uint32_t parts, uint32_t root)
{
	struct layout l = {.payload = payload, .parts = parts, .root = root, .element = element};

	l.each = count / element / parts * element;
	l.longer = count / element % parts;
	l.long_chunks = chunks_of(l.each + element, payload);
	l.short_chunks = chunks_of(l.each, payload);
	return l;
}

/* part_first() - Number of a part's first chunk; of a part behind the last: how many there are */
uint64_t part_first(const struct layout *l, uint32_t part)
{
	return part <= l->longer ? part * l->long_chunks
				 : l->longer * l->long_chunks + (part - l->longer) * l->short_chunks;
}

uint64_t part_chunks(const struct layout *l, uint32_t part)
{
	return part_first(l, part + 1) - part_first(l, part);
}

uint64_t layout_chunks(const struct layout *l)
{
	return part_first(l, l->parts);
}

static uint32_t part_of(const struct layout *l, uint64_t chunk)
{
	uint64_t in_long = l->longer * l->long_chunks;

	return (uint32_t)(chunk < in_long ? chunk / l->long_chunks : l->longer + (chunk - in_long) / l->short_chunks);
}

/* chunk_offset() - Where a chunk lies, and how long it is; there must be one of that number */
uint64_t chunk_offset(const struct layout *l, uint64_t chunk, uint32_t *bytes)
{
	uint32_t part = part_of(l, chunk);
	uint64_t at = (chunk - part_first(l, part)) * l->payload, length = l->each + (part < l->longer ? l->element : 0);

	*bytes = length - at < l->payload ? (uint32_t)(length - at) : l->payload;
	return part * l->each + (part < l->longer ? part : l->longer) * l->element + at;
}

/* sender_of() - Which member has a chunk; there must be one of that number */
uint32_t sender_of(const struct layout *l, uint64_t chunk)
{
	return l->root == UINT32_MAX ? part_of(l, chunk) : l->root;
}
