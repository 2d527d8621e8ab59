/* Tables that fill themselves: an entry is in its table because it is defined, so nobody lists the entries
 *
 * A room declares a table: REGISTRY(type, table).  A file of this room, or of one above it, defines an entry and puts it
 * in: REGISTER(table, entry).  The linker lays pointers to all entries side by side, in a section with the table's name,
 * and makes the two symbols that say where the section begins and ends.
 */
#ifndef BASE_REGISTRY_H
#define BASE_REGISTRY_H

#define REGISTRY(type, table) extern const type *const __start_##table[], *const __stop_##table[]

#define REGISTER(table, entry) \
	static const __typeof__(entry) *const registered_##entry __attribute__((used, section(#table))) = &(entry)

/* A loop over the entries of a table; @at points to a pointer to the entry */
#define REGISTRY_EACH(type, table, at) for (const type *const *at = __start_##table; at < __stop_##table; at++)

#endif
