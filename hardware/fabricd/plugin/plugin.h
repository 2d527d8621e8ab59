/* Code of users' own: loaded, and called so that whatever goes wrong in it is named (plugin.c) */
#ifndef PLUGIN_PLUGIN_H
#define PLUGIN_PLUGIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/registry.h"

struct fabric;

struct plugin {
	struct plugin *next; /* of the fabric's */
	const struct plugin_kind *kind;
	char name[64]; /* of its source file */
	int fd;	       /* of the compiled one, until it is loaded */
	const char *file;  /* its path */
	const void *entry; /* what it defines */
};

/* What such a file may define.  A kind is one file, which ends with PLUGIN_KIND(what it defines) */
struct plugin_kind {
	const char *list;   /* of the configuration: [{"name", "file", "params"}, ..] */
	const char *symbol; /* that the file defines, and that begins with a version */
	size_t bytes, at;   /* of what stands for one, zeroed, and where in it the struct plugin is */
	/* false, with f->error set: it is not what it should be */
	bool (*named)(struct fabric *f, void *own, const json_t *keys); /* it may be used by name; keys of its parameters */
	bool (*loaded)(struct fabric *f, void *own);			/* its entry is there */
};

REGISTRY(struct plugin_kind, plugin_kinds);
#define PLUGIN_KIND(kind) REGISTER(plugin_kinds, kind)

bool plugins_open(struct fabric *f);
bool plugins_load(struct fabric *f);
bool plugin_keys(struct fabric *f, const json_t *keys, const char **key, size_t most);
bool plugin_call(struct fabric *f, const struct plugin *p, const char *entry, void (*call)(void *), void *what);
void plugin_failed(struct fabric *f, const struct plugin *p, const char *entry, const char *wrong);

#endif
