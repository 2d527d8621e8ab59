/* Lines of an answer of `ofproto/trace`, and whether it holds for each ingress port
 *
 * Theory of Operation
 *
 * Of the ingress port Open vSwitch's `Megaflow` always has all bits, as its own
 * caches have.  But few tables look at it, and then hundreds of hosts that send to the
 * same one are one flow.  So it is found out here.  A decision is the same for frames
 * that come in elsewhere, and alike in what the megaflow tells, if
 *
 *  - no rule of the switch matches on the ingress port (rules.c), and no port is
 *    configured otherwise than others (tables_watch.c);
 *  - all that was done is known here not to look at the port it came in at: a rule that was
 *    met, or not met, by a register may follow from what an action has put there;
 *  - no copy was left out because it would have left where the frame came in.
 *
 * It is not the same for a frame that comes in where one of the copies leaves
 * (megaflows.c), as Open vSwitch would leave that copy out.
 */
#include <string.h>

#include "fast_path/trace_text.h"

static bool begins_with_one(const char *line, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strncmp(line, words[i], strlen(words[i])))
			return true;
	return false;
}

/* trace_line_is_caption() - Is a line no action?  Those of rules begin with their table, " 0." */
bool trace_line_is_caption(const char *line, size_t len)
{
	static const char *const captions[] = {"Flow: ", "bridge(", "----", "Final flow: ", "Megaflow: ", "Datapath actions: "};
	size_t digits = strspn(line, "0123456789");

	return !len || (digits && line[digits] == '.') || begins_with_one(line, captions, sizeof captions / sizeof *captions);
}

/* Does an action, or what is said of one, have nothing to do with the port that a frame came in at? */
static bool is_alike(const char *line, size_t len)
{
	static const char *const actions[] = {
		"bucket ", "-> using bucket ", "dec_ttl", "drop", "goto_table:", "group:", "mod_dl_", "mod_nw_", "mod_tp_", "mod_vlan_",
		"multipath(symmetric_l3l4+udp,", "-> NXM_NX_REG", "pop_vlan", "push_vlan:", "resubmit(,", "set_field:", "set_queue:", "strip_vlan",
	};
	static const char load[] = "load:", to_register[] = "->NXM_NX_REG", output[] = "output:";

	if (!strncmp(line, output, sizeof output - 1))
		return line[sizeof output - 1] >= '0' && line[sizeof output - 1] <= '9';
	if (!strncmp(line, load, sizeof load - 1))
		return memmem(line, len, to_register, sizeof to_register - 1);
	return begins_with_one(line, actions, sizeof actions / sizeof *actions);
}

/* trace_tells_ports_apart() - May the decision be another one where the same frame comes in at another port? */
bool trace_tells_ports_apart(const char *text)
{
	size_t len;

	for (const char *line = text; *line; line += len + (line[len] == '\n')) {
		line += strspn(line, " ");
		len = strcspn(line, "\n");
		if (!trace_line_is_caption(line, len) && !is_alike(line, len))
			return true;
	}
	return false;
}
