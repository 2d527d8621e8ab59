/* Time series: the fabric's state at equal steps of emulated time, and every edge of a pause
 *
 * Theory of Operation
 *
 * Between two events nothing changes.  So there is no event for a sample: before
 * an event runs that lies behind the next point of the grid, the state is what it
 * was at that point.  Sampling can therefore neither keep the fabric busy nor
 * change a figure.  Only what differs from the last sample is written, as records
 * of 24 bytes, little endian:
 *
 *	i64 time (ps), u16 kind, u16 class, u32 index, i64 value
 *
 * Ports are numbered over all switches, then NICs, as the answer to `sample`
 * lists them; queue pairs by when they are first seen, in a record that says
 * rank, number and peer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/units.h"
#include "control/control.h"
#include "control/sample.h"
#include "engine/fabric.h"
#include "link/params.h"
#include "link/port.h"
#include "nic/nic.h"
#include "switch/switch.h"
#include "transport/congestion.h"
#include "transport/qp.h"

#define RECORD_BYTES 24
#define FILE_BUFFER_BYTES (1 << 20)

enum record_of {
#define SAMPLE(number, name, what) SAMPLE_##name = number,
#include "control/samples.def"
#undef SAMPLE
};

struct sampler {
	FILE *file;
	int error; /* errno of the first write that failed */
	char *path;
	ps_t period, next, began; /* the grid's first point */
	uint32_t qps;	  /* numbered so far */
	uint64_t *buffer; /* by switch: what was written last */
	uint64_t *cnps, *first_cnps; /* by NIC */
	struct port_sample {
		uint64_t queue[CLASSES], marked[CLASSES], sent;
		uint64_t first_marked[CLASSES], first_sent; /* counted before */
		uint8_t used;
	} *port;
};

static void put(struct sampler *s, ps_t t, enum record_of kind, unsigned class, uint32_t index, uint64_t value)
{
	uint8_t record[RECORD_BYTES];
	uint8_t *p = put_le16(put_le16(put_le64(record, (uint64_t)t), (uint16_t)kind), (uint16_t)class);

	put_le64(put_le32(p, index), value);
	if (fwrite(record, sizeof record, 1, s->file) != 1 && !s->error)
		s->error = errno;
}

static void sample_port(struct sampler *s, ps_t t, const struct port *p)
{
	struct port_sample *last = &s->port[p->index];
	uint8_t look = p->classes_used | last->used;

	for (unsigned c = 0; look; c++, look >>= 1) {
		if (!(look & 1))
			continue;
		if (p->queue[c].bytes != last->queue[c])
			put(s, t, SAMPLE_QUEUE, c, p->index, last->queue[c] = p->queue[c].bytes);
		if (p->tc[c].marked != last->marked[c])
			put(s, t, SAMPLE_MARKED, c, p->index, (last->marked[c] = p->tc[c].marked) - last->first_marked[c]);
	}
	last->used = p->classes_used;
	if (p->tx_bytes != last->sent)
		put(s, t, SAMPLE_PORT_SENT, 0, p->index, (last->sent = p->tx_bytes) - last->first_sent);
}

static void sample_qp(struct fabric *f, struct sampler *s, ps_t t, struct qp *q)
{
	struct qp_sample *last = &q->sample;

	if (q->state == QP_CONNECTING || !q->sent_max)
		return;
	if (!last->number) {
		last->number = ++s->qps;
		put(s, t, SAMPLE_QP, (unsigned)q->nic->rank, last->number,
		    (uint64_t)q->connect_peer << 32 | q->number);
	}
	cc_catch_up(f, q);
	uint64_t rate = (uint64_t)q->cc_state.rate, flying = (q->send - q->acked) * q->mtu;
	if (rate != last->rate)
		put(s, t, SAMPLE_RATE, 0, last->number, last->rate = rate);
	if (q->tx_bytes != last->sent)
		put(s, t, SAMPLE_SENT, 0, last->number, last->sent = q->tx_bytes);
	if (flying != last->flying)
		put(s, t, SAMPLE_IN_FLIGHT, 0, last->number, last->flying = flying);
}

static void sample(struct fabric *f, struct sampler *s, ps_t t)
{
	for (uint32_t k = 0; k < f->switch_count; k++) {
		struct sw *w = &f->switches[k];
		for (uint16_t i = 0; i < w->n.port_count; i++)
			sample_port(s, t, &w->n.ports[i]);
		if (w->used != s->buffer[k])
			put(s, t, SAMPLE_BUFFER, 0, k, s->buffer[k] = w->used);
	}
	for (uint32_t k = 0; k < f->nic_count; k++) {
		struct nic *n = &f->nics[k];
		sample_port(s, t, &n->port[0]);
		for (uint32_t i = 0; i < n->qp_count; i++)
			sample_qp(f, s, t, n->qps[i]);
		if (n->np_cnps != s->cnps[k])
			put(s, t, SAMPLE_CNPS, 0, k, (s->cnps[k] = n->np_cnps) - s->first_cnps[k]);
	}
}

/* sample_next() - The next point of the grid */
ps_t sample_next(const struct fabric *f)
{
	return f->sampler ? f->sampler->next : PS_NEVER;
}

/* sample_before() - An event of time @t is about to run: take the points of the grid that lie before it */
void sample_before(struct fabric *f, ps_t t)
{
	struct sampler *s = f->sampler;

	if (t <= s->next)
		return;
	f->clock.now = f->clock.now > s->next ? f->clock.now : s->next;
	sample(f, s, s->next);
	s->next = s->began + (t - 1 - s->began) / s->period * s->period; /* the last one before it: nothing changes in between */
	if (s->next < t && s->next > f->clock.now) {
		f->clock.now = s->next;
		sample(f, s, s->next);
	}
	s->next += s->period;
}

/* sample_pause() - A port's class was paused by the other end of its cable, or is free again */
void sample_pause(struct fabric *f, const struct port *p, unsigned class, bool on)
{
	if (f->sampler)
		put(f->sampler, f->clock.now, SAMPLE_PAUSE, class, p->index, on);
}

static void count_from_now(const struct fabric *f, struct sampler *s)
{
	for (uint32_t k = 0; k < f->switch_count + f->nic_count; k++)
		for (uint16_t i = 0; i < f->nodes[k]->port_count; i++) {
			const struct port *p = &f->nodes[k]->ports[i];
			struct port_sample *first = &s->port[p->index];
			first->sent = first->first_sent = p->tx_bytes;
			CLASSES_EACH(c)
				first->marked[c] = first->first_marked[c] = p->tc[c].marked;
		}
	for (uint32_t k = 0; k < f->nic_count; k++)
		s->cnps[k] = s->first_cnps[k] = f->nics[k].np_cnps;
}

/* What the indices stand for */
static void places_json(const struct fabric *f, json_t *answer)
{
	json_t *ports = json_array(), *switches = json_array(), *nics = json_array();

	for (uint32_t k = 0; k < f->switch_count + f->nic_count; k++) {
		const struct node *n = f->nodes[k];
		json_array_append_new(n->kind == NODE_SWITCH ? switches : nics, json_string(n->name));
		for (uint16_t i = 0; i < n->port_count; i++) {
			const struct port *p = &n->ports[i];
			json_array_append_new(ports, json_pack("[s, i, s, i]", n->name, (int)p->number,
							       p->peer ? p->peer->node->name : "",
							       p->peer ? (int)p->peer->number : 0));
		}
	}
	json_object_set_new(answer, "ports", ports);
	json_object_set_new(answer, "switches", switches);
	json_object_set_new(answer, "nics", nics);
}

/* sample_start() - The request `sample`: begin to write samples, on a grid that begins now; so does what is counted
 * Return: NULL, or what is wrong
 */
const char *sample_start(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	const char *path = json_string_value(json_object_get(request, "path"));
	const json_t *period = json_object_get(request, "period_ns");
	double ns = json_number_value(period);
	struct sampler *s;

	if (!path)
		return "sample: path is needed";
	if (!json_is_number(period) || !(ns >= 100) || ns > 1e12)
		return "sample: period_ns: from 100 to 1e12";
	if (f->sampler)
		return "sample: there is one already";
	FILE *file = control_file(c);
	if (!file)
		return "sample: the file was not handed over, or is not to be written";
	s = calloc(1, sizeof *s);
	if (!s)
		abort();
	ps_t step = (ps_t)(ns * PS_PER_NS + 0.5);
	*s = (struct sampler){.period = step,
			      .next = f->clock.now + step,
			      .began = f->clock.now,
			      .path = strdup(path),
			      .buffer = calloc(f->switch_count + 1, sizeof(uint64_t)),
			      .cnps = calloc(f->nic_count + 1, sizeof(uint64_t)),
			      .first_cnps = calloc(f->nic_count + 1, sizeof(uint64_t)),
			      .port = calloc(f->port_count + 1, sizeof(struct port_sample)),
			      .file = file};
	if (!s->path || !s->buffer || !s->cnps || !s->first_cnps || !s->port)
		abort();
	count_from_now(f, s);
	f->sampler = s;
	s->error = ftruncate(fileno(file), 0) ? errno : 0;
	setvbuf(s->file, NULL, _IOFBF, FILE_BUFFER_BYTES);
	places_json(f, answer);
	return NULL;
}

/* sample_end() - Write what is left and close the file
 * Return: NULL, or what is wrong
 */
const char *sample_end(struct fabric *f)
{
	struct sampler *s = f->sampler;
	const char *wrong = NULL;

	if (!s)
		return NULL;
	sample(f, s, f->clock.now);
	if (fclose(s->file) && !s->error) /* what was still buffered */
		s->error = errno;
	if (s->error) {
		snprintf(f->error, sizeof f->error, "the samples %.300s are not whole: %s", s->path, strerror(s->error));
		wrong = f->error;
	}
	for (uint32_t k = 0; k < f->nic_count; k++)
		for (uint32_t i = 0; i < f->nics[k].qp_count; i++)
			f->nics[k].qps[i]->sample = (struct qp_sample){0};
	free(s->path);
	free(s->buffer);
	free(s->cnps);
	free(s->first_cnps);
	free(s->port);
	free(s);
	f->sampler = NULL;
	return wrong;
}

/* sample_stop() - The request `sample_stop` */
const char *sample_stop(struct fabric *f, struct control_conn *c, const json_t *request, json_t *answer)
{
	(void)c;
	(void)request;
	(void)answer;
	return sample_end(f);
}
