/* SIGSEGV: ours are looked for first, any other is the program's
 *
 * Several of our files look at faults: at writes to memory that is just being shared (share.c), at memory that is polled
 * and at the time-stamp counter (the time library).  So there is one handler, which asks each, and then whatever handler
 * was there before.  A program may put its own in our place and chain to us, and we, put there again, to it: a fault that
 * comes round is nobody's, and ends the process as it would without us.
 */
#include <signal.h>
#include <stdint.h>

#include "clock.h"

#define LOOKS 4

static railbed_looks *looks[LOOKS];
static struct sigaction before;
static _Atomic bool handles; /* our handler is there; the time library asks that within sigaction */
static __thread struct {
	const void *context;
	uintptr_t frame;
} passing; /* what was passed on last, and from where on the stack */

/* The instruction is executed again, and ends the program */
static void end(void)
{
	static const struct sigaction none = {.sa_handler = SIG_DFL};

	handles = false;
	sigaction(SIGSEGV, &none, NULL);
}

static void pass_on(int number, siginfo_t *info, void *context, uintptr_t frame)
{
	bool round = passing.context == context && frame < passing.frame;

	passing.context = context;
	passing.frame = frame;
	if (!round && before.sa_flags & SA_SIGINFO && before.sa_sigaction)
		before.sa_sigaction(number, info, context);
	else if (!round && before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(number);
	else
		end();
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	for (int i = 0; i < LOOKS && looks[i]; i++)
		if (looks[i](info, context))
			return;
	pass_on(number, info, context, (uintptr_t)__builtin_frame_address(0));
}

/* railbed_faults() - From now on that is asked whether a fault was its own */
void railbed_faults(railbed_looks *look)
{
	struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK}, is;

	for (int i = 0; i < LOOKS; i++) {
		if (looks[i] == look)
			break;
		if (!looks[i]) {
			looks[i] = look;
			break;
		}
	}
	sigaddset(&ours.sa_mask, SIGRTMAX); /* the time library's look at what is polled */
	if (sigaction(SIGSEGV, NULL, &is) || is.sa_sigaction == on_fault)
		return;
	handles = false;
	before = is;
	sigaction(SIGSEGV, &ours, NULL);
	handles = true;
}

/* railbed_handles() - A program's handler, as of sigaction: if ours is there, it stands behind that */
bool railbed_handles(const struct sigaction *new, struct sigaction *was)
{
	struct sigaction old = before;

	if (!handles)
		return false;
	if (new)
		before = *new;
	if (was)
		*was = old;
	return true;
}

/* railbed_most() - All signals but those that an instruction causes: blocked, they would end the process */
void railbed_most(sigset_t *most)
{
	static const int of_instructions[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};

	sigfillset(most);
	for (unsigned i = 0; i < sizeof of_instructions / sizeof *of_instructions; i++)
		sigdelset(most, of_instructions[i]);
}
