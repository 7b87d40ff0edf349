/* See cgroup.h. */
#include "who/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/util.h"
#include "who/procfs.h"

#define MEMBERS_MAX    512
#define FILEID_KERNFS_ 0xfe /* include/linux/exportfs.h: the handle is the group's number */

static const struct hierarchy {
    const char *at, *controller;
    unsigned long magic;
} hierarchies[CGROUP_HIERARCHIES] = {
    {"/sys/fs/cgroup", "", CGROUP2_SUPER_MAGIC},
    {"/sys/fs/cgroup/unified", "", CGROUP2_SUPER_MAGIC},
    {"/sys/fs/cgroup/systemd", "name=systemd", CGROUP_SUPER_MAGIC},
    {"/sys/fs/cgroup/pids", "pids", CGROUP_SUPER_MAGIC},
};

static bool is_mounted(const struct hierarchy *h)
{
    struct statfs fs;
    return statfs(h->at, &fs) == 0 && (unsigned long)fs.f_type == h->magic;
}

/* Gets the directory of the process's group. 1: there it is. 0: the process is in the root, or its
 * group is outside our namespace ("/.."). An error if the group cannot be read now. */
static int group_directory(pid_t pid, const struct hierarchy *h, char *out, size_t size)
{
    char text[16384], *line, *rest = text;
    const size_t len = strlen(h->controller);
    if (!is_mounted(h))
        return 0;
    int r = (int)proc_read(pid, "cgroup", text, sizeof(text));
    if (r < 0)
        return proc_unsure(r) ? r : 0;
    /* "4:pids:/path" */
    while ((line = strsep(&rest, "\n"))) {
        const char *name = strchr(line, ':');
        if (!name || strncmp(name + 1, h->controller, len) != 0 || name[1 + len] != ':')
            continue;
        const char *path = name + len + 2;
        if (path[0] != '/' || !path[1] || strncmp(path, "/..", 3) == 0)
            return 0;
        return (size_t)snprintf(out, size, "%s%s", h->at, path) < size;
    }
    return 0;
}

int cgroup_levels(pid_t pid, uint32_t hierarchy, uint64_t ids[CGROUP_LEVELS_MAX])
{
    const struct hierarchy *h = &hierarchies[hierarchy - 1];
    char path[4096 + 32];
    struct stat st;
    int n = 0, r = group_directory(pid, h, path, sizeof(path));
    if (r <= 0)
        return r;
    for (; strcmp(path, h->at) != 0 && n < (int)CGROUP_LEVELS_MAX; *strrchr(path, '/') = '\0') {
        if (stat(path, &st) < 0)
            return proc_unsure(-errno) ? -errno : 0;
        ids[n++] = st.st_ino;
    }
    return n;
}

/* Whether root is among them and each of the others has a parent among them. */
static bool only_descendants(pid_t root, const int *pids, unsigned n)
{
    bool found = false;
    for (unsigned i = 0; i < n; i++) {
        struct proc_stat st;
        bool inside = pids[i] == root;
        found |= inside;
        if (!inside && (proc_stat_read(pids[i], &st) < 0 || pids[i] == getpid()))
            return false;
        for (unsigned k = 0; k < n && !inside; k++)
            inside = pids[k] == st.ppid;
        if (!inside)
            return false;
    }
    return found;
}

static unsigned members_read(const char *path, int pids[MEMBERS_MAX])
{
    char name[4096 + 80];
    unsigned n = 0;
    snprintf(name, sizeof(name), "%s/cgroup.procs", path);
    _cleanup_fclose_ FILE *f = fopen(name, "re");
    while (f && n < MEMBERS_MAX && fscanf(f, "%d", &pids[n]) == 1)
        n++;
    return n;
}

static bool owns_group(pid_t root, const char *path)
{
    struct stat st;
    int pids[MEMBERS_MAX];
    if (stat(path, &st) < 0 || st.st_nlink != 2)
        return false;
    const unsigned n = members_read(path, pids);
    return n < MEMBERS_MAX && only_descendants(root, pids, n);
}

/* Cuts the path behind the innermost directory that has this name or, with `part`, contains it in
 * its name. */
static bool cut_above(char *path, const struct hierarchy *h, const char *name, bool part)
{
    for (char *last; strcmp(path, h->at) != 0; *last = '\0') {
        last = strrchr(path, '/');
        if (part ? strstr(last + 1, name) != NULL : strcmp(last + 1, name) == 0)
            return true;
    }
    return false;
}

/* Finds the group of that name or, if name is NULL, the one that the process has to itself. */
static bool find_group(pid_t pid, const char *name, struct cgroup *out)
{
    for (uint32_t i = 0; i < CGROUP_HIERARCHIES; i++) {
        const struct hierarchy *h = &hierarchies[i];
        char path[4096 + 32];
        struct stat st;
        if (group_directory(pid, h, path, sizeof(path)) <= 0 ||
            !(name ? cut_above(path, h, name, false) : owns_group(pid, path)) ||
            stat(path, &st) < 0)
            continue;
        *out = (struct cgroup){.hierarchy = i + 1, .id = st.st_ino};
        return true;
    }
    return false;
}

bool cgroup_own(pid_t root, struct cgroup *out)
{
    return find_group(root, NULL, out);
}

bool cgroup_above(pid_t pid, const char *name, struct cgroup *out)
{
    return find_group(pid, name, out);
}

static pid_t oldest_in(const char *path)
{
    struct proc_stat st;
    struct proc_id oldest = {.pid = 0};
    int pids[MEMBERS_MAX];
    unsigned n = members_read(path, pids);
    for (unsigned i = 0; i < n; i++) {
        if (proc_stat_read(pids[i], &st) == 0 &&
            (!oldest.pid || st.id.start_ticks < oldest.start_ticks))
            oldest = st.id;
    }
    return oldest.pid;
}

pid_t cgroup_first(pid_t pid, const char *part)
{
    static const char *const below[] = {"", "/init.scope", "/init"};
    pid_t first = 0;
    for (uint32_t i = 0; i < CGROUP_HIERARCHIES; i++) {
        char path[4096 + 32], in[4096 + 48];
        if (group_directory(pid, &hierarchies[i], path, sizeof(path)) <= 0 ||
            !cut_above(path, &hierarchies[i], part, true))
            continue;
        for (size_t k = 0; k < ARRAY_SIZE(below) && !first; k++) {
            snprintf(in, sizeof(in), "%s%s", path, below[k]);
            first = oldest_in(in);
        }
    }
    return first;
}

bool cgroup_populated(struct cgroup g)
{
    union {
        struct file_handle h;
        char room[sizeof(struct file_handle) + sizeof(g.id)];
    } handle = {.h = {.handle_bytes = sizeof(g.id), .handle_type = FILEID_KERNFS_}};
    if (!g.hierarchy || g.hierarchy > CGROUP_HIERARCHIES)
        return false;
    const struct hierarchy *h = &hierarchies[g.hierarchy - 1];
    struct statfs fs;
    _cleanup_close_ int mount = open(h->at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mount < 0 || fstatfs(mount, &fs) < 0 || (unsigned long)fs.f_type != h->magic)
        return false;
    memcpy(handle.room + sizeof(handle.h), &g.id, sizeof(g.id));
    _cleanup_close_ int dir = open_by_handle_at(mount, &handle.h, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const bool events = h->magic == CGROUP2_SUPER_MAGIC;
    _cleanup_close_ int fd =
        dir < 0 ? -1 : openat(dir, events ? "cgroup.events" : "cgroup.procs", O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return events ? strstr(text, "populated 1") != NULL : n > 0;
}

/* Cuts a path of the hierarchy `controllers` ("", "pids", "cpu,cpuacct", "name=systemd") behind the
 * last name that only root could give, because a user who may write to a directory names the groups
 * in it. */
static void cut_to_root(const char *controllers, char *path)
{
    char at[4096 + 320];
    struct stat st;
    const char *name = strncmp(controllers, "name=", 5) == 0 ? controllers + 5 : controllers;
    size_t base = 0;
    for (const struct hierarchy *h = hierarchies; h < hierarchies + CGROUP_HIERARCHIES; h++) {
        if (!*controllers && !base && !*h->controller && is_mounted(h))
            base = (size_t)snprintf(at, sizeof(at), "%s", h->at);
    }
    if (*controllers)
        base = (size_t)snprintf(at, sizeof(at), "/sys/fs/cgroup/%.255s", name);
    if (!base || base + strlen(path) >= sizeof(at) || strstr(path, "/..")) {
        *path = '\0';
        return;
    }
    for (char *p = path; *p; p += 1 + strcspn(p + 1, "/")) {
        snprintf(at + base, sizeof(at) - base, "%.*s", (int)(p - path), path);
        if (stat(at, &st) < 0 || (st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & 022) {
            *p = '\0';
            return;
        }
    }
}

void cgroup_workload(pid_t pid, bool named_by_root, struct workload *out)
{
    char text[8192], *rest = text, *line;
    *out = (struct workload){.slurm_job = 0};
    if (proc_read(pid, "cgroup", text, sizeof(text)) < 0)
        return;
    /* "4:pids:/path": in version 1 a group may exist in some hierarchies only. */
    while ((line = strsep(&rest, "\n"))) {
        char *controllers = strchr(line, ':'), *path = strchr(line, '/');
        struct workload w;
        if (!controllers || !path || path <= controllers + 1)
            continue;
        if (named_by_root) {
            path[-1] = '\0';
            cut_to_root(controllers + 1, path);
        }
        workload_read(path, &w);
        if (!out->container[0])
            memcpy(out->container, w.container, sizeof(w.container));
        if (!out->pod[0])
            memcpy(out->pod, w.pod, sizeof(w.pod));
        if (!out->unit[0])
            memcpy(out->unit, w.unit, sizeof(w.unit));
        out->slurm_job = out->slurm_job ? out->slurm_job : w.slurm_job;
        if (!out->slurm_step[0])
            memcpy(out->slurm_step, w.slurm_step, sizeof(w.slurm_step));
    }
}

/* ---- this process's own ---- */

#define RUN_GROUP "cede-run-"

static bool is_run_group(const char *name)
{
    return strncmp(name, RUN_GROUP, strlen(RUN_GROUP)) == 0;
}

static bool own_version2(char *path, size_t size)
{
    for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
        if (hierarchies[i].magic == CGROUP2_SUPER_MAGIC &&
            group_directory(getpid(), &hierarchies[i], path, size) > 0)
            return true;
    }
    return false;
}

static bool group_join(const char *path)
{
    char procs[4096 + 96];
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
    _cleanup_close_ int fd = open(procs, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "0", 1) == 1;
}

static void remove_empty_below(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (is_run_group(e->d_name))
            (void)unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}

bool cgroup_run_enter(void)
{
    char path[4096 + 32], group[4096 + 64];
    struct cgroup own;
    if (!own_version2(path, sizeof(path)) || cgroup_own(getpid(), &own))
        return false;
    remove_empty_below(path);
    snprintf(group, sizeof(group), "%s/" RUN_GROUP "%d", path, (int)getpid());
    for (int times = 0; times < 3; times++) { /* another process may remove it while it is empty */
        if (mkdir(group, 0755) < 0)
            return false;
        if (group_join(group))
            return true;
        (void)rmdir(group);
    }
    return false;
}

void cgroup_run_leave(bool all)
{
    char path[4096 + 32], group[4096 + 32];
    for (bool first = true; (first || all) && own_version2(path, sizeof(path)); first = false) {
        char *last = strrchr(path, '/');
        if (!is_run_group(last + 1))
            return;
        memcpy(group, path, sizeof(group));
        *last = '\0';
        if (!group_join(path))
            return;
        (void)rmdir(group);
    }
}

void cgroup_leave(const char *name)
{
    cgroup_run_leave(true);
    for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
        char path[4096 + 32], beside[4096 + 96];
        if (group_directory(getpid(), &hierarchies[i], path, sizeof(path)) <= 0)
            continue;
        *strrchr(path, '/') = '\0';
        snprintf(beside, sizeof(beside), "%s/%s", path, name);
        (void)mkdir(beside, 0755);
        (void)group_join(beside);
    }
}
