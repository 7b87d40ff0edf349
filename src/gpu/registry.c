/* See registry.h. */
#include "gpu/registry.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "gpu/mux.h"
#include "gpu/soft/client.h"

/* The name of several drivers in a device_address, which journals keep. */
#define SEVERAL "multi"

static const struct device_ops *const drivers[] = {&device_nvidia, &device_amd, &device_soft,
                                                   &device_gate};

static const struct device_ops *driver_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        if (strcmp(name, drivers[i]->name) == 0)
            return drivers[i];
    }
    return NULL;
}

/* ---- lists ---- */

#define GPUS_UNKNOWN UINT_MAX /* the number is found when the driver is opened */

/* Parses NAME[*GPUS][@PATH]; only an address has *GPUS. */
static int name_parse(const char *text, size_t n, bool address, struct mux_part *out,
                      struct error *err)
{
    char item[160], *path, *count;
    uint64_t gpus;
    *out = (struct mux_part){.gpus = GPUS_UNKNOWN};
    if (n >= sizeof(item))
        return error_set(err, -EINVAL, "device: '%.40s...' is too long", text);
    snprintf(item, sizeof(item), "%.*s", (int)n, text);
    path = strchr(item, '@');
    if (path) {
        *path++ = '\0';
        if (path[0] != '/' || strlen(path) >= sizeof(out->where))
            return error_set(err, -EINVAL,
                             "device: '%s@%s': an absolute path of at most %zu bytes is needed",
                             item, path, sizeof(out->where) - 1);
        memcpy(out->where, path, strlen(path) + 1);
    }
    count = address ? strchr(item, '*') : NULL;
    if (count) {
        *count++ = '\0';
        if (parse_u64(count, 0, DEVICE_GPUS_MAX, &gpus) < 0)
            return error_set(err, -EINVAL, "device: '%s*%s': how many GPUs?", item, count);
        out->gpus = (unsigned)gpus;
    }
    out->ops = driver_named(item);
    if (!out->ops)
        return error_set(
            err, -EINVAL,
            "unknown device '%s': use auto, nvidia, amd, soft or gate, or several of the "
            "last four with commas between",
            item);
    if (path && out->ops != &device_soft)
        return error_set(err, -EINVAL, "device: '%s' takes no @PATH: only soft does", item);
    return 0;
}

static int list_parse(const char *list, bool address, struct mux_part *v, unsigned *n,
                      struct error *err)
{
    *n = 0;
    for (const char *p = list;; p++) {
        size_t len = strcspn(p, ",");
        if (*n == MUX_PARTS_MAX)
            return error_set(err, -EINVAL, "device: more than %d drivers", MUX_PARTS_MAX);
        int r = name_parse(p, len, address, &v[*n], err);
        if (r < 0)
            return r;
        for (unsigned i = 0; i < *n; i++) {
            if (v[i].ops == v[*n].ops && strcmp(v[i].where, v[*n].where) == 0)
                return error_set(err, -EINVAL, "device: '%.*s' is named twice", (int)len, p);
        }
        ++*n;
        p += len;
        if (!*p)
            return 0;
    }
}

int device_list_check(const char *list, struct error *err)
{
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n;
    return strcmp(list, "auto") == 0 ? 0 : list_parse(list, false, v, &n, err);
}

static void close_parts(struct mux_part *v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        device_close(v[i].driver);
}

/* soft, gate: paths for parts that name none. A part that cannot be opened has the driver NULL. */
static int registry_part_open(struct mux_part *p, const char *soft, const char *gate,
                              struct error *err)
{
    char path[sizeof(p->where)];
    const char *where = p->ops == &device_soft ? soft : p->ops == &device_gate ? gate : NULL;
    if (p->where[0])
        where = NULL;
    /* The default path depends on the environment, so an address names the path. */
    else if (!where && p->ops == &device_soft && soft_default_path(path, sizeof(path)) == 0)
        where = path;
    if (where && (size_t)snprintf(p->where, sizeof(p->where), "%s", where) >= sizeof(p->where))
        return error_set(err, -ENAMETOOLONG, "%s: the path '%s' is too long", p->ops->name, where);
    int r = p->ops->open(p->where[0] ? p->where : NULL, &p->driver, err);
    if (r < 0)
        p->driver = NULL;
    if (p->gpus == GPUS_UNKNOWN)
        p->gpus = r == 0 ? p->ops->gpus(p->driver) : 0;
    return r;
}

/* With `all`, opens all hardware that is there, else the software GPU, and the gate in any case;
 * without `all`, opens the first of hardware and software GPU. */
static int open_auto(const char *soft, const char *gate, bool all, struct mux_part *v, unsigned *n,
                     struct error *err)
{
    struct error why = {""};
    unsigned gpus = 0;
    *n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        struct mux_part *p = &v[*n];
        struct error e = {""};
        *p = (struct mux_part){.ops = drivers[i], .gpus = GPUS_UNKNOWN};
        if (all ? p->ops == &device_soft && *n : p->ops == &device_gate || *n)
            continue;
        int r = registry_part_open(p, soft, gate, &e);
        /* A device that exists but cannot be used is an error. */
        if (r < 0 && r != -ENODEV) {
            close_parts(v, *n);
            return error_set(err, r, "%s", e.text);
        }
        if (r < 0 && !why.text[0])
            why = e;
        if (r == 0 && p->ops == &device_gate && gpus + p->gpus > DEVICE_GPUS_MAX)
            device_close(p->driver); /* the GPUs without the gate are better than an error */
        else if (r == 0)
            gpus += v[(*n)++].gpus;
    }
    if (*n)
        return 0;
    return error_set(err, -ENODEV,
                     "no GPU that can be scheduled: %s; for a software GPU start `cede-softgpu` "
                     "or try `cede demo --device soft`",
                     why.text);
}

/* Opens all drivers of a list. Of an address one is enough; the others keep their indices. */
static int open_listed(const char *list, bool address, const char *soft, const char *gate,
                       struct mux_part *v, unsigned *n, struct error *err)
{
    struct error first = {""};
    unsigned open = 0;
    int r = list_parse(list, address, v, n, err), why = -ENODEV;
    if (r < 0)
        return r;
    for (unsigned i = 0; i < *n; i++) {
        struct error e = {""};
        r = registry_part_open(&v[i], soft, gate, &e);
        open += r == 0;
        if (r < 0 && !first.text[0]) {
            first = e;
            why = r;
        }
    }
    if (address ? open > 0 : open == *n)
        return 0;
    close_parts(v, *n);
    return error_set(err, why, "%s", first.text);
}

int device_open_list(const char *list, const char *soft, const char *gate,
                     struct device_driver **out, struct device_address *address, struct error *err)
{
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n = 0;
    int r = strcmp(list, "auto") == 0 ? open_auto(soft, gate, true, v, &n, err)
                                      : open_listed(list, false, soft, gate, v, &n, err);
    if (r < 0)
        return r;
    memset(address, 0, sizeof(*address));
    for (unsigned i = 0; i < n; i++) {
        if (v[i].ops == &device_gate)
            v[i].where[0] = '\0'; /* only the daemon listens; others have nothing to undo here */
    }
    if (n == 1) {
        *out = v[0].driver;
        snprintf(address->name, sizeof(address->name), "%s", v[0].ops->name);
        snprintf(address->where, sizeof(address->where), "%s", v[0].where);
        return 0;
    }
    r = mux_new(v, n, out, err);
    if (r < 0)
        return r;
    snprintf(address->name, sizeof(address->name), "%s", SEVERAL);
    if (mux_where(*out, address->where, sizeof(address->where)) < 0) {
        device_close(*out);
        return error_set(err, -E2BIG, "device: the paths are too long: %zu bytes in all at most",
                         sizeof(address->where) - 1);
    }
    return 0;
}

int device_open(const char *name, const char *where, struct device_driver **out, struct error *err)
{
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n;
    if (strcmp(name, SEVERAL) == 0) {
        int r = open_listed(where ? where : "", true, NULL, NULL, v, &n, err);
        return r < 0 ? r : mux_new(v, n, out, err);
    }
    if (strcmp(name, "auto") == 0) {
        int r = open_auto(where, NULL, false, v, &n, err);
        if (r == 0)
            *out = v[0].driver;
        return r;
    }
    const struct device_ops *ops = driver_named(name);
    if (!ops)
        return error_set(err, -EINVAL, "unknown device '%s': use auto, nvidia, amd or soft", name);
    return ops->open(where, out, err);
}
