/* See findings.h. */
#include "daemon/findings.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_text.h"
#include "base/paths.h"
#include "base/text.h"
#include "base/version.h"
#include "gpu/ops.h"

#define FINDINGS_SIZE_MAX 16384
#define FINDINGS_MAX      16 /* the newest */

static const struct {
    uint32_t cap;
    const char *key, *name;
} kinds[] = {
    {GPU_CAP_TIMESLICE, "timeslice", "timeslices"},
    {GPU_CAP_SUSPEND, "suspend", "suspension"},
    {GPU_CAP_PREEMPT, "preempt", "preemption at block ends"},
    {GPU_CAP_SWAP, "swap", "swapping"},
};

void finding_names(uint32_t caps, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (caps & kinds[i].cap)
            list_add(buf, size, kinds[i].name);
    }
    if (!buf[0])
        snprintf(buf, size, "nothing");
}

/* The array of findings; NULL: the file is missing, damaged or writable by others. */
static json_t *findings_read(const char *dir)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof(path), "%s/" FINDINGS_FILE, dir);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & (S_IWGRP | S_IWOTH)) || st.st_size > FINDINGS_SIZE_MAX)
        return NULL;
    _cleanup_json_ json_t *o = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    json_t *all = json_object_get(o, "findings");
    return json_is_array(all) ? json_incref(all) : NULL;
}

static bool is_about(const json_t *x, const struct finding *f)
{
    const char *cede = json_get_text(x, "cede"), *driver = json_get_text(x, "driver"),
               *chip = json_get_text(x, "chip");
    return cede && driver && chip && strcmp(cede, build_version()) == 0 &&
           strcmp(driver, f->driver) == 0 && strcmp(chip, f->chip) == 0;
}

/* False: the entry is not one that a check writes. */
static bool finding_read(const json_t *x, struct finding *f)
{
    const json_t *off = json_object_get(x, "off");
    const char *why = json_get_text(x, "why");
    size_t k;
    f->off = 0;
    if (!json_is_array(off) || !why || strlen(why) >= sizeof(f->why))
        return false;
    for_each_json (name, off) {
        const char *key = json_string_value(name);
        for (k = 0; k < ARRAY_SIZE(kinds) && (!key || strcmp(key, kinds[k].key) != 0); k++)
            ;
        if (k == ARRAY_SIZE(kinds))
            return false;
        f->off |= kinds[k].cap;
    }
    snprintf(f->why, sizeof(f->why), "%s", why);
    text_printable(f->why);
    return (f->off != 0) == (f->why[0] != '\0');
}

bool findings_find(const char *dir, struct finding *f)
{
    _cleanup_json_ json_t *all = findings_read(dir);
    bool found = false;
    for_each_json (x, all) {
        if (is_about(x, f) && finding_read(x, f)) {
            found = true;
            break;
        }
    }
    return found;
}

static json_t *finding_json(const struct finding *f)
{
    json_t *off = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (f->off & kinds[i].cap)
            json_array_append_new(off, json_string(kinds[i].key));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "cede", build_version(), "driver", f->driver,
                     "chip", json_text(f->chip), "off", off, "why", json_text(f->why));
}

/* Replaces the file by rename(), so that readers find the old or the new one and no part. There is
 * no fsync(), for which ceded would wait: a file that is damaged when the machine loses power costs
 * one more check of the driver. */
static int findings_write(const char *dir, const json_t *all, struct error *err)
{
    char path[256], next[272];
    snprintf(path, sizeof(path), "%s/" FINDINGS_FILE, dir);
    snprintf(next, sizeof(next), "%s.new", path);
    json_t *o = json_pack("{s:O}", "findings", all);
    _cleanup_free_ char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    json_decref(o);
    _cleanup_close_ int fd =
        open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    int r = !text ? -ENOMEM : fd < 0 ? -errno : write_full(fd, text, strlen(text));
    if (r == 0 && rename(next, path) < 0)
        r = -errno;
    if (r < 0 && fd >= 0)
        unlink(next);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

int findings_keep(const char *dir, const struct finding *f, struct error *err)
{
    int r = cede_dir_make(dir, err);
    if (r < 0)
        return r;
    _cleanup_json_ json_t *all = findings_read(dir);
    if (!all)
        all = json_array();
    for (size_t i = json_array_size(all); i-- > 0;) {
        const json_t *x = json_array_get(all, i);
        if (is_about(x, f) || json_array_size(all) >= FINDINGS_MAX)
            json_array_remove(all, i);
    }
    json_array_insert_new(all, 0, finding_json(f));
    return findings_write(dir, all, err);
}
