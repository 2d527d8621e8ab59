/* Whose a record is: executions that are under way, by queue pair and by the high bits of their immediates. */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

static uint32_t begins(const struct turns *t, uint32_t qp, uint32_t number)
{
	uint64_t key = (uint64_t)qp << 32 | number;

	return (uint32_t)(key * 0x9E3779B97F4A7C15ull >> 32) & (t->room - 1);
}

/* table_find() - Return: NULL if it is no execution's */
const struct entry *table_find(const struct turns *t, uint32_t qp, uint32_t number)
{
	if (!t->used)
		return NULL;
	for (uint32_t k = begins(t, qp, number); t->table[k].execution; k = (k + 1) & (t->room - 1))
		if (t->table[k].qp == qp && t->table[k].number == number)
			return &t->table[k];
	return NULL;
}

static void put(struct turns *t, struct entry e)
{
	uint32_t k = begins(t, e.qp, e.number);

	while (t->table[k].execution && (t->table[k].qp != e.qp || t->table[k].number != e.number))
		k = (k + 1) & (t->room - 1);
	t->used += !t->table[k].execution;
	t->table[k] = e;
}

static void add(struct turns *t, struct entry e)
{
	if (2 * (t->used + 1) > t->room) {
		struct entry *old = t->table;
		uint32_t room = t->room;
		t->room = room ? 2 * room : 64;
		t->used = 0;
		t->table = calloc(t->room, sizeof *t->table);
		if (!t->table)
			abort();
		for (uint32_t k = 0; k < room; k++)
			if (old[k].execution)
				put(t, old[k]);
		free(old);
	}
	put(t, e);
}

/* What stands behind a free place moves up, so that it is found */
static void take_out(struct turns *t, uint32_t k)
{
	t->table[k].execution = NULL;
	t->used--;
	for (uint32_t next = (k + 1) & (t->room - 1); t->table[next].execution; next = (next + 1) & (t->room - 1)) {
		struct entry e = t->table[next];
		t->table[next].execution = NULL;
		t->used--;
		put(t, e);
	}
}

/* turns_add() - From now on records of @x are handed to it, which gets a number.  Return: the number */
uint32_t turns_add(struct turns *t, struct execution *x);
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
		add(t, (struct entry){.execution = x, .qp = x->lines[line].qp, .number = x->first >> NUMBER_BITS, .line = line});
	return number;
}

/* turns_remove() - They are no longer */
void turns_remove(struct turns *t, struct execution *x);
void turns_remove(struct turns *t, struct execution *x)
{
	t->by_number[x->number] = NULL;
	for (uint32_t line = 0; line < x->plan->line_count; line++) {
		const struct entry *e = table_find(t, x->lines[line].qp, x->first >> NUMBER_BITS);
		if (e && e->execution == x)
			take_out(t, (uint32_t)(e - t->table));
	}
}

/* turns_close() - The session is over */
void turns_close(struct turns *t);
void turns_close(struct turns *t)
{
	free(t->table);
	free(t->by_number);
	free(t->going.items);
	t->table = NULL;
	t->by_number = NULL;
	t->going = (struct row){0};
	t->room = t->used = t->numbers = 0;
}
