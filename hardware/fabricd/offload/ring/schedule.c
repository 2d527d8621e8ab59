/* The schedule of a NIC-side ring: which chunk, which part of it, in how many packets. */
#include "nic/nic.h"
#include "offload/ring/ring.h"
#include "vector/element.h"
#include "worker/worker.h"

/* ring_chunk() - Length and start of a chunk, in elements */
uint64_t ring_chunk(const struct ring_member *r, uint64_t count, uint32_t chunk, uint64_t *start)
{
	uint64_t each = count / r->ranks, more = count % r->ranks;

	*start = each * chunk + (chunk < more ? chunk : more);
	return each + (chunk < more);
}

/* ring_part() - Length and start of a chunk's part in a pass, in elements */
uint64_t ring_part(const struct ring_member *r, const struct ring_pass *q, uint32_t chunk, uint64_t *start)
{
	uint64_t length = ring_chunk(r, q->wr.count, chunk, start), most = (uint64_t)r->pass_packets * r->packet_elements;
	uint64_t left = length > q->part ? length - q->part : 0;

	*start += q->part < length ? q->part : length;
	return left < most ? left : most;
}

/* ring_sends() - The chunk that a hop sends to the right */
uint32_t ring_sends(const struct ring_member *r, const struct ring_pass *q, uint32_t hop)
{
	uint32_t back = hop < q->reducing ? hop + 1 : hop - q->reducing;

	return (r->index + r->ranks - back) % r->ranks;
}

/* ring_receives() - The chunk that it receives from the left: that of the next hop, if there is one */
uint32_t ring_receives(const struct ring_member *r, const struct ring_pass *q, uint32_t hop)
{
	return (ring_sends(r, q, hop) + r->ranks - 1) % r->ranks;
}

/* ring_packets() - Packets of a chunk: one at least */
uint64_t ring_packets(const struct ring_member *r, uint64_t elements)
{
	return elements ? (elements + r->packet_elements - 1) / r->packet_elements : 1;
}

/* ring_wire_bytes() - What a packet's elements take on the wire */
uint32_t ring_wire_bytes(const struct ring_member *r, uint32_t elements)
{
	return r->compressed ? bfp_bytes(elements) : elements * element_bytes[r->element];
}

/* ring_memory() - The worker's memory, or NULL if it has gone */
uint8_t *ring_memory(const struct ring_member *r, uint32_t key, uint64_t at, uint64_t bytes)
{
	return worker_memory(r->nic->worker, key, at, bytes);
}
