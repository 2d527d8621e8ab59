/* Whose a record is: executions that are under way, by queue pair and by the high bits of their immediates. */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

static uint32_t begins(const struct table *table, uint64_t key)
{
	return (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 32) & (table->room - 1);
}

static uint32_t behind(const struct table *table, uint32_t k)
{
	return (k + 1) & (table->room - 1);
}

/* Where the key stands, or could */
static uint32_t place_of(const struct table *table, uint64_t key)
{
	uint32_t k = begins(table, key);

	while (table->entries[k].execution && table->entries[k].key != key)
		k = behind(table, k);
	return k;
}

/* table_find() - Return: NULL if it is no execution's */
const struct entry *table_find(const struct table *table, uint64_t key)
{
	if (!table->used)
		return NULL;
	const struct entry *e = &table->entries[place_of(table, key)];
	return e->execution ? e : NULL;
}

static void put(struct table *table, struct entry e)
{
	uint32_t k = place_of(table, e.key);

	table->used += !table->entries[k].execution;
	table->entries[k] = e;
}

/* table_add() - In place of what has that key */
void table_add(struct table *table, struct entry e)
{
	if (2 * (table->used + 1) > table->room) {
		struct table old = *table;
		table->room = old.room ? 2 * old.room : 64;
		table->used = 0;
		table->entries = calloc(table->room, sizeof *table->entries);
		if (!table->entries)
			abort();
		for (uint32_t k = 0; k < old.room; k++)
			if (old.entries[k].execution)
				put(table, old.entries[k]);
		free(old.entries);
	}
	put(table, e);
}

/* table_take() - Take an entry out; those behind a free place move up, so that they are found */
void table_take(struct table *table, uint64_t key)
{
	uint32_t k = place_of(table, key);

	if (!table->entries[k].execution)
		return;
	table->entries[k].execution = NULL;
	table->used--;
	for (k = behind(table, k); table->entries[k].execution; k = behind(table, k)) {
		struct entry e = table->entries[k];
		table->entries[k].execution = NULL;
		table->used--;
		put(table, e);
	}
}

/* turns_add() - From now on records of @x are handed to it, which gets a number.  Return: the number */
uint32_t turns_add(struct turns *t, struct execution *x)
{
	uint32_t number = 0;

	while (number < t->numbers && t->by_number[number])
		number++;
	if (number == t->numbers) {
		uint32_t numbers = t->numbers ? 2 * t->numbers : 16;
		t->by_number = realloc(t->by_number, numbers * sizeof(struct execution *));
		if (!t->by_number)
			abort();
		memset(t->by_number + t->numbers, 0, (numbers - t->numbers) * sizeof(struct execution *));
		t->numbers = numbers;
	}
	t->by_number[number] = x;
	x->number = number;
	for (uint32_t line = 0; line < x->plan->line_count; line++)
		table_add(&t->messages, (struct entry){.execution = x, .key = message_key(x->lines[line].qp, x->first >> NUMBER_BITS), .index = line});
	return number;
}

/* turns_remove() - They are no longer */
void turns_remove(struct turns *t, struct execution *x)
{
	t->by_number[x->number] = NULL;
	ahead_removed(t, x);
	for (uint32_t line = 0; line < x->plan->line_count; line++) {
		uint64_t key = message_key(x->lines[line].qp, x->first >> NUMBER_BITS);
		const struct entry *e = table_find(&t->messages, key);
		if (e && e->execution == x)
			table_take(&t->messages, key);
	}
}

/* turns_close() - The session is over */
void turns_close(struct turns *t)
{
	free(t->messages.entries);
	free(t->computations.entries);
	free(t->by_number);
	free(t->going.items);
	free(t->free_chains.items);
	free(t->stopped);
	t->messages = t->computations = (struct table){0};
	t->by_number = NULL;
	t->numbers = 0;
	t->going = t->free_chains = (struct row){0};
	t->stopped = NULL;
	t->stopped_count = t->stopped_room = 0;
}
