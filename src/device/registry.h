/* The drivers by name, opened alone or several as one. The only place that knows which drivers
 * there are; must not look into any of them. */
#ifndef CEDE_DEVICE_REGISTRY_H
#define CEDE_DEVICE_REGISTRY_H

#include "device/ops.h"

/* By name ("nvidia", "amd", "soft", "gate"); "auto": nvidia or amd where its device files exist,
 * else soft where its server answers. -ENODEV with what was looked for and what to do. "multi":
 * what device_open_list() opened in another process, its device_address.where as `where`; what is
 * not there any more is left out, until it is. */
int device_open(const char *name, const char *where, struct device_driver **out, struct error *err);

/* What device_open() needs to open the same elsewhere. */
struct device_address {
    char name[16], where[256];
};
/* Of a driver that device_open() opened without a `where`. */
void device_default_address(const struct device_driver *d, struct device_address *address);
/* One driver, or several behind one: NAME[@PATH],... with a PATH (absolute, without commas) for
 * "soft" alone. "auto" is all hardware that is there, else the software GPU where its server
 * answers, and the gate. soft, gate: PATH where none is named; NULL: the default. */
int device_open_list(const char *list, const char *soft, const char *gate,
                     struct device_driver **out, struct device_address *address, struct error *err);
/* 0, or -EINVAL with what is wrong in it. */
int device_list_check(const char *list, struct error *err);

#endif
