/* Memory that a rank shares with its NIC, in huge pages: the rank makes them, beside other ranks that make theirs.
 *
 * fabricd would make those of all ranks one after the other, while everybody waits for it.
 */
#include "base/huge.h"

uint8_t *shared_map(int fd, size_t bytes, bool make);

/* shared_map() - Map all of a memfd, and have its pages there if they are to be made now.  Return: NULL if it cannot be */
uint8_t *shared_map(int fd, size_t bytes, bool make)
{
	uint8_t *base = huge_map(fd, 0, bytes);

	if (base && make)
		huge_make(base, bytes);
	return base;
}
