/* See experience.h. */
#include "core/observe/experience.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fnv.h"

#define KEPT_S   (7 * 24 * 3600ULL)
#define KEPT_NS  (KEPT_S * NSEC_PER_SEC)
#define SAVED_NS (60 * NSEC_PER_SEC) /* the file is not written more often for the same */

/* The arguments (job.program) are those that `cede run` sent, because a program can delay a read of
 * its /proc files as long as it wants by locking its memory. */
static uint64_t key_of(const struct job *j)
{
    const struct journal_job *rec = &j->rec;
    uint64_t hash = fnv(FNV_START, &rec->uid, sizeof(rec->uid));
    hash = fnv(hash, rec->name, strnlen(rec->name, sizeof(rec->name)));
    return fnv(hash, &j->program, sizeof(j->program));
}

uint64_t experience_key(const struct model *m, const uint32_t *slots, uint32_t n)
{
    uint64_t sum = 0; /* independent of the order; users can choose it, so their uid is outside */
    for (uint32_t i = 0; i < n; i++)
        sum += key_of(&m->jobs[slots[i]]);
    return (uint64_t)m->jobs[slots[0]].rec.uid << 32 | (uint32_t)fnv(sum, &n, sizeof(n));
}

static uint32_t experience_find(const struct experience *x, uint64_t key)
{
    uint32_t i = 0;
    while (i < x->n && x->v[i].key != key)
        i++;
    return i;
}

uint32_t experience_of(const struct experience *x, uint64_t key, uint64_t now_ns)
{
    uint32_t i = experience_find(x, key);
    return i < x->n && now_ns < x->v[i].until_ns ? x->v[i].together : 0;
}

bool experience_lost(const struct experience *x, uint64_t key, uint64_t now_ns)
{
    const uint32_t together = experience_of(x, key, now_ns);
    return together && together < EXPERIENCE_LEAST;
}

static bool experience_path(const struct experience *x, char *path, const char *suffix)
{
    return x->dir && (size_t)snprintf(path, PATH_MAX, "%s/experience%s", x->dir, suffix) < PATH_MAX;
}

/* Replaces the file as a whole. If that fails, the daemon knows it until it ends. The file has
 * times of day, because the daemon's clock starts at 0 with the machine. */
static void save(const struct experience *x, uint64_t now_ns)
{
    const uint64_t today = (uint64_t)time(NULL);
    char path[PATH_MAX], new[PATH_MAX];
    if (!experience_path(x, path, "") || !experience_path(x, new, ".new"))
        return;
    int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->v[i].until_ns > now_ns)
            fprintf(f, "%016" PRIx64 " %" PRIu64 " %" PRIu32 "\n", x->v[i].key,
                    (uint64_t)(today + (x->v[i].until_ns - now_ns) / NSEC_PER_SEC),
                    x->v[i].together);
    }
    if (fclose(f) != 0 || rename(new, path) != 0)
        unlink(new);
}

static uint32_t of_same_user(const struct experience *x, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < x->n; k++)
        n += x->v[k].key >> 32 == x->v[i].key >> 32;
    return n;
}

/* The oldest of the user who has most goes first, so that nobody can have others' forgotten. */
static bool more_dispensable(const struct experience *x, uint32_t a, uint32_t b)
{
    const uint32_t of_a = of_same_user(x, a), of_b = of_same_user(x, b);
    return of_a == of_b ? x->v[a].until_ns < x->v[b].until_ns : of_a > of_b;
}

void experience_learn(struct experience *x, uint64_t key, uint32_t together, uint64_t now_ns)
{
    uint32_t i = experience_find(x, key);
    if ((!together && !experience_lost(x, key, now_ns)) ||
        (i < x->n && x->v[i].together == together &&
         x->v[i].until_ns + SAVED_NS > now_ns + KEPT_NS))
        return;
    bool full = i == EXPERIENCE_MAX;
    for (uint32_t k = 0; full && k < EXPERIENCE_MAX; k++)
        i = k == 0 || more_dispensable(x, k, i) ? k : i;
    x->n += i == x->n;
    x->v[i].key = key;
    x->v[i].until_ns = now_ns + KEPT_NS;
    x->v[i].together = together;
    if (!together)
        x->v[i] = x->v[--x->n];
    save(x, now_ns);
}

void experience_load(struct experience *x, const char *dir, uint64_t now_ns)
{
    char path[PATH_MAX];
    const uint64_t today = (uint64_t)time(NULL);
    uint64_t key, until;
    char line[96];
    *x = (struct experience){.dir = dir};
    int fd = experience_path(x, path, "")
                 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                 : -1;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while (x->n < EXPERIENCE_MAX && fgets(line, sizeof(line), f)) {
        uint32_t together = 1;
        if (sscanf(line, "%16" SCNx64 " %20" SCNu64 " %9" SCNu32, &key, &until, &together) < 2 ||
            until <= today || until - today > KEPT_S)
            continue; /* damaged, expired, or written while the clock was wrong */
        x->v[x->n].together = together;
        x->v[x->n].key = key;
        x->v[x->n++].until_ns = now_ns + (until - today) * NSEC_PER_SEC;
    }
    fclose(f);
}
