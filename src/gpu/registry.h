/* Opens drivers by name, one or several as one. Only registry.c knows which drivers there are; it
 * must not depend on how they work. */
#ifndef CEDE_GPU_REGISTRY_H
#define CEDE_GPU_REGISTRY_H

#include "gpu/ops.h"

/* Opens a driver by name ("nvidia", "amd", "soft", "gate"). "auto": nvidia or amd where its device
 * files exist, else soft where its server answers. "multi": the drivers that device_open_list()
 * opened in another process, whose device_address.where is `where`; a driver that is missing is
 * opened later. -ENODEV: err says what was looked for and what to do. */
int device_open(const char *name, const char *where, struct device_driver **out, struct error *err);

/* The arguments with which device_open() opens the same drivers in another process. */
struct device_address {
    char name[16], where[256];
};
/* Opens the drivers of a list, NAME[@PATH],..., in which only "soft" may have a PATH (absolute,
 * without commas). "auto": all hardware that is there, else the software GPU where its server
 * answers, and the gate. soft, gate: PATH where the list has none; NULL: the default. */
int device_open_list(const char *list, const char *soft, const char *gate,
                     struct device_driver **out, struct device_address *address, struct error *err);
/* Checks a list: 0, or -EINVAL with what is wrong in it. */
int device_list_check(const char *list, struct error *err);

#endif
