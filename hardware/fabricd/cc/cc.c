/* Congestion controls and their parameters, by name. */
#include <string.h>

#include "cc/cc.h"
#include "nic/params.h"
#include "transport/congestion.h"

#define CC_ENTRY(name) &cc_##name,
static const struct cc_algorithm *const controls[] = {CC_CONTROLS(CC_ENTRY)};

static const char *const names[CC_PARAMS] = {
	[CC_MIN_RATE] = "min_rate_bps",
	[CC_AI] = "ai_bps",
	[CC_HAI] = "hai_bps",
	[CC_G] = "g",
	[CC_ALPHA_TIMER] = "alpha_timer_ns",
	[CC_RATE_TIMER] = "rate_timer_ns",
	[CC_BYTE_COUNTER] = "byte_counter_bytes",
	[CC_FAST_RECOVERY] = "fast_recovery",
	[CC_DECREASE_GAP] = "decrease_gap_ns",
	[CC_CNP_GAP] = "cnp_gap_ns",
	[CC_BASE_RTT] = "base_rtt_ns",
	[CC_ETA] = "eta",
	[CC_MAX_STAGE] = "max_stage",
	[CC_EWMA] = "ewma",
	[CC_BETA] = "beta",
	[CC_T_LOW] = "t_low_ns",
	[CC_T_HIGH] = "t_high_ns",
	[CC_MIN_RTT] = "min_rtt_ns",
	[CC_HAI_AFTER] = "hai_after",
	[CC_BASE_TARGET] = "base_target_ns",
	[CC_HOP_SCALE] = "hop_scale_ns",
	[CC_FLOW_RANGE] = "flow_range_ns",
	[CC_FLOW_MIN_WINDOW] = "flow_min_window",
	[CC_FLOW_MAX_WINDOW] = "flow_max_window",
	[CC_MAX_DECREASE] = "max_decrease",
	[CC_AI_PACKETS] = "ai_packets",
	[CC_TARGET_QUEUE] = "target_queue_ns",
	[CC_WINDOW] = "window_bytes",
	[CC_MIN_WINDOW] = "min_window",
	[CC_PROPORTIONAL_PACKETS] = "proportional_packets",
	[CC_PERIOD_PACKETS] = "period_packets",
	[CC_FAST] = "fast",
	[CC_QUICK_ADAPT] = "quick_adapt_ns",
	[CC_CLAMP_TARGET] = "clamp_target",
	[CC_ARMED] = "first_cut",
};

/* cc_find() - The control of that name, or NULL */
const struct cc_algorithm *cc_find(const char *name)
{
	for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++)
		if (!strcmp(controls[i]->name, name))
			return controls[i];
	return NULL;
}

/* cc_params_set() - Take over the parameters that an object names
 * Return: NULL, or what is wrong
 */
const char *cc_params_set(struct cc_params *p, const json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v) {
		double x = json_number_value(v);
		int i = 0;
		while (i < CC_PARAMS && strcmp(names[i], key))
			i++;
		if (i == CC_PARAMS)
			return "cc: params: an unknown parameter";
		if (!json_is_number(v) || !(x >= 0) || x > 1e15)
			return "cc: params: numbers from 0 to 1e15";
		p->v[i] = x;
	}
	return NULL;
}

