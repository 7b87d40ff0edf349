/* See registry.h. */
#include "device/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/amd/driver.h"
#include "device/gate/driver.h"
#include "device/mux.h"
#include "device/nvidia/driver.h"
#include "device/soft/client.h"
#include "device/soft/driver.h"

/* The name of several in a device_address; journals keep it. */
#define SEVERAL "multi"

static const struct device_ops *const drivers[] = {&device_nvidia, &device_amd, &device_soft,
                                                   &device_gate};

static int no_device(const struct error *why, struct error *err)
{
    return error_set(err, -ENODEV,
                     "no GPU that can be scheduled: %s; for a software GPU start `cede-softgpu` "
                     "or try `cede demo --device soft`",
                     why->text);
}

/* ---- lists ---- */

struct name {
    const struct device_ops *ops;
    bool has_count;
    uint64_t count;
    char where[108];
};

/* NAME[*GPUS][@PATH]; *GPUS only in an address. */
static int name_parse(const char *text, size_t n, bool address, struct name *out, struct error *err)
{
    char item[160], *rest;
    *out = (struct name){.ops = NULL};
    if (n >= sizeof(item))
        return error_set(err, -EINVAL, "device: '%.40s...' is too long", text);
    snprintf(item, sizeof(item), "%.*s", (int)n, text);
    rest = strchr(item, '@');
    if (rest) {
        *rest++ = '\0';
        if (rest[0] != '/' || strlen(rest) >= sizeof(out->where))
            return error_set(err, -EINVAL,
                             "device: '%s@%s': an absolute path of at most %zu bytes is needed",
                             item, rest, sizeof(out->where) - 1);
        memcpy(out->where, rest, strlen(rest) + 1);
    }
    char *count = address ? strchr(item, '*') : NULL;
    if (count) {
        *count++ = '\0';
        if (parse_u64(count, 0, DEVICE_GPUS_MAX, &out->count) < 0)
            return error_set(err, -EINVAL, "device: '%s*%s': how many GPUs?", item, count);
        out->has_count = true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        if (strcmp(item, drivers[i]->name) == 0)
            out->ops = drivers[i];
    }
    const struct device_ops *ops = out->ops;
    if (!ops)
        return error_set(
            err, -EINVAL,
            "unknown device '%s': use auto, nvidia, amd, soft or gate, or several of the "
            "last four with commas between",
            item);
    if (rest && ops != &device_soft)
        return error_set(err, -EINVAL, "device: '%s' takes no @PATH: only soft does", item);
    return 0;
}

static int list_parse(const char *list, bool address, struct name *v, unsigned *n,
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
    struct name v[MUX_PARTS_MAX];
    unsigned n;
    return strcmp(list, "auto") == 0 ? 0 : list_parse(list, false, v, &n, err);
}

static void close_parts(struct mux_part *v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        device_close(v[i].driver);
}

static int registry_part_open(const struct name *name, const char *where, struct mux_part *p,
                              struct error *err)
{
    char path[sizeof(p->where)];
    *p = (struct mux_part){.ops = name->ops};
    where = name->where[0] ? name->where : where;
    /* Its default is another one in another environment: an address names it. */
    if (!where && name->ops == &device_soft && soft_default_path(path, sizeof(path)) == 0)
        where = path;
    if (where && (size_t)snprintf(p->where, sizeof(p->where), "%s", where) >= sizeof(p->where))
        return error_set(err, -ENAMETOOLONG, "%s: the path '%s' is too long", name->ops->name,
                         where);
    int r = p->ops ? p->ops->open(where, &p->driver, err) : -EINVAL;
    p->gpus = r == 0 ? p->ops->gpus(p->driver) : 0;
    return r;
}

/* All hardware that is there. */
static int open_auto(const char *soft, const char *gate, struct mux_part *v, unsigned *n,
                     struct error *err)
{
    struct error why = {""};
    unsigned gpus = 0;
    *n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        struct name name = {.ops = drivers[i]};
        struct error e = {""};
        if (name.ops == &device_soft && *n)
            continue;
        int r = registry_part_open(&name,
                                   name.ops == &device_soft   ? soft
                                   : name.ops == &device_gate ? gate
                                                              : NULL,
                                   &v[*n], &e);
        /* A device that is there and cannot be used is an error. */
        if (r < 0 && r != -ENODEV) {
            close_parts(v, *n);
            return error_set(err, r, "%s", e.text);
        }
        if (r < 0 && !why.text[0])
            why = e;
        if (r == 0 && name.ops == &device_gate && gpus + v[*n].gpus > DEVICE_GPUS_MAX)
            device_close(v[*n].driver); /* rather than nothing at all */
        else if (r == 0)
            gpus += v[(*n)++].gpus;
    }
    return *n ? 0 : no_device(&why, err);
}

static int open_named(const char *list, const char *soft, const char *gate, struct mux_part *v,
                      unsigned *n, struct error *err)
{
    struct name names[MUX_PARTS_MAX];
    unsigned all;
    int r = list_parse(list, false, names, &all, err);
    *n = 0;
    while (r == 0 && *n < all) {
        const struct device_ops *ops = names[*n].ops;
        r = registry_part_open(&names[*n],
                               ops == &device_soft   ? soft
                               : ops == &device_gate ? gate
                                                     : NULL,
                               &v[*n], err);
        if (r == 0)
            ++*n;
    }
    if (r < 0)
        close_parts(v, *n);
    return r;
}

void device_default_address(const struct device_driver *d, struct device_address *address)
{
    memset(address, 0, sizeof(*address));
    snprintf(address->name, sizeof(address->name), "%s", d->ops->name);
    if (d->ops == &device_soft)
        (void)soft_default_path(address->where, sizeof(address->where));
}

int device_open_list(const char *list, const char *soft, const char *gate,
                     struct device_driver **out, struct device_address *address, struct error *err)
{
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n = 0;
    int r = strcmp(list, "auto") == 0 ? open_auto(soft, gate, v, &n, err)
                                      : open_named(list, soft, gate, v, &n, err);
    if (r < 0)
        return r;
    memset(address, 0, sizeof(*address));
    for (unsigned i = 0; i < n; i++) {
        if (v[i].ops == &device_gate)
            v[i].where[0] = '\0'; /* nothing to undo: no other process shall listen there */
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

/* By its address. What cannot be opened keeps its place. */
static int open_again(const char *where, struct device_driver **out, struct error *err)
{
    struct name names[MUX_PARTS_MAX];
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n, open = 0;
    struct error first = {""};
    int r = list_parse(where, true, names, &n, err), why = -ENODEV;
    if (r < 0)
        return r;
    for (unsigned i = 0; i < n; i++) {
        struct error e = {""};
        r = registry_part_open(&names[i], NULL, &v[i], &e);
        open += r == 0;
        if (r < 0 && !first.text[0]) {
            first = e;
            why = r;
        }
        if (r < 0)
            v[i].driver = NULL;
        v[i].gpus = names[i].has_count ? (unsigned)names[i].count : v[i].gpus;
    }
    return open ? mux_new(v, n, out, err) : error_set(err, why, "%s", first.text);
}

/* ---- one ---- */

int device_open(const char *name, const char *where, struct device_driver **out, struct error *err)
{
    bool any = strcmp(name, "auto") == 0;
    struct error first = {""};
    if (strcmp(name, SEVERAL) == 0)
        return open_again(where ? where : "", out, err);
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        if (any ? drivers[i] == &device_gate : strcmp(name, drivers[i]->name) != 0)
            continue;
        struct error e = {""};
        int r = drivers[i]->open(where, out, &e);
        if (r == 0)
            return 0;
        /* "auto" goes on only where there is no such device; a device that is there and cannot be
         * used is an error. */
        if (!any || r != -ENODEV)
            return error_set(err, r, "%s", e.text);
        if (!first.text[0])
            first = e;
    }
    if (!any)
        return error_set(err, -EINVAL, "unknown device '%s': use auto, nvidia, amd or soft", name);
    return no_device(&first, err);
}
