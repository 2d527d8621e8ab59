/* Code of users' own: loaded, and called so that whatever goes wrong in it is named (plugin.c) */
#ifndef PLUGIN_PLUGIN_H
#define PLUGIN_PLUGIN_H

#include <jansson.h>
#include <stdbool.h>

struct fabric;

struct plugin {
	char name[64]; /* of its source file */
	int fd;	       /* of the compiled one, until it is loaded */
};

bool plugin_open(struct fabric *f, struct plugin *p, const json_t *o);
bool plugin_keys(struct fabric *f, const json_t *o, const char **key, size_t most);
const void *plugin_load(struct fabric *f, struct plugin *p, const char *symbol);
bool plugin_call(struct fabric *f, const struct plugin *p, const char *entry, void (*call)(void *), void *what);
void plugin_failed(struct fabric *f, const struct plugin *p, const char *entry, const char *wrong);

#endif
