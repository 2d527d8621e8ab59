/* What every room needs of the fabric as a whole. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/fabric.h"

/* config_fail() - Keep the first error
 * Return: false
 */
bool config_fail(struct fabric *f, const char *format, ...)
{
	va_list args;

	if (f->error[0])
		return false;
	va_start(args, format);
	vsnprintf(f->error, sizeof f->error, format, args);
	va_end(args);
	return false;
}
