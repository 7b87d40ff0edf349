/* What the AMD compute driver shows in sysfs: GPUs, processes with queues, their queues and
 * memory. Reads only. Everything can disappear between two reads; what is gone is left out.
 *
 *   topology/nodes/N/{gpu_id,name,properties,mem_banks/M/properties}   gpu_id 0: a CPU
 *   proc/PID/queues/Q/{gpuid,type,size}
 *   proc/PID/vram_GPUID
 * proc/PID_CONTEXT are further contexts of a process, which the debug trap does not reach. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "device/amd/kfd.h"

int kfd_parse_number(const char *text, uint64_t *out)
{
    char digits[24];
    size_t n = strcspn(text, "\n");
    if (n >= sizeof(digits) || (text[n] && text[n + 1]))
        return -EINVAL;
    memcpy(digits, text, n);
    digits[n] = '\0';
    return parse_u64(digits, 0, UINT64_MAX, out) < 0 ? -EINVAL : 0;
}

static int sysfs_read_text(const char *path, char *buf, size_t size)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t n = 0;
    while (n + 1 < size) {
        ssize_t k = read(fd, buf + n, size - 1 - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        if (k == 0)
            break;
        n += (size_t)k;
    }
    buf[n] = '\0';
    return 0;
}

static int sysfs_read_number(const char *path, uint64_t *out)
{
    char text[64];
    int r = sysfs_read_text(path, text, sizeof(text));
    return r < 0 ? r : kfd_parse_number(text, out);
}

static void node_value(struct kfd_gpu *g, const char *key, uint64_t value, uint64_t place[2])
{
    if (strcmp(key, "capability") == 0) {
        const uint64_t need = KFD_CAP_TRAP_DEBUG | KFD_CAP_DEBUG_FIRMWARE;
        g->info.caps = (value & need) == need ? GPU_CAP_SUSPEND | GPU_CAP_FLEETING : 0;
    } else if (strcmp(key, "gfx_target_version") == 0 && value && value <= 999999) {
        unsigned v = (unsigned)value; /* 90010: gfx90a */
        snprintf(g->info.name, sizeof(g->info.name), "AMD gfx%u%x%x", v / 10000, v / 100 % 100,
                 v % 100);
    } else if (strcmp(key, "unique_id") == 0 && value) {
        snprintf(g->info.uuid, sizeof(g->info.uuid), "GPU-%016llx", (unsigned long long)value);
    } else if (strcmp(key, "domain") == 0) {
        place[0] = value & 0xffff;
    } else if (strcmp(key, "location_id") == 0) {
        place[1] = value;
    }
}

/* The next "key number" line; false at the end. */
static bool sysfs_next_line(const char **text, char key[48], uint64_t *value)
{
    while (**text) {
        size_t n = strcspn(*text, "\n");
        const char *line = *text, *blank = memchr(line, ' ', n);
        *text += n + (line[n] == '\n');
        if (!blank || blank == line || blank - line >= 48)
            continue;
        char number[24];
        size_t digits = n - (size_t)(blank + 1 - line);
        if (digits >= sizeof(number))
            continue;
        memcpy(number, blank + 1, digits);
        number[digits] = '\0';
        memcpy(key, line, (size_t)(blank - line));
        key[blank - line] = '\0';
        if (parse_u64(number, 0, UINT64_MAX, value) == 0)
            return true;
    }
    return false;
}

void kfd_parse_node(const char *text, struct kfd_gpu *out)
{
    char key[48];
    uint64_t value, place[2] = {0, 0};
    while (sysfs_next_line(&text, key, &value))
        node_value(out, key, value, place);
    snprintf(out->info.bus_id, sizeof(out->info.bus_id), "%04x:%02x:%02x.%x", (unsigned)place[0],
             (unsigned)(place[1] >> 8 & 0xff), (unsigned)(place[1] >> 3 & 0x1f),
             (unsigned)(place[1] & 7));
}

static uint64_t memory_of_node(const char *sysfs, unsigned node)
{
    enum { HEAP_PUBLIC = 1, HEAP_PRIVATE = 2 };
    uint64_t sum = 0;
    for (unsigned bank = 0; bank < 16; bank++) {
        char path[256], text[1024], key[48];
        uint64_t value, heap = 0, size = 0;
        const char *p = text;
        snprintf(path, sizeof(path), "%s/topology/nodes/%u/mem_banks/%u/properties", sysfs, node,
                 bank);
        if (sysfs_read_text(path, text, sizeof(text)) < 0)
            break;
        while (sysfs_next_line(&p, key, &value)) {
            heap = strcmp(key, "heap_type") == 0 ? value : heap;
            size = strcmp(key, "size_in_bytes") == 0 ? value : size;
        }
        sum += heap == HEAP_PUBLIC || heap == HEAP_PRIVATE ? size : 0;
    }
    return sum;
}

static int kfd_by_bus_id(const void *a, const void *b)
{
    return strcmp(((const struct kfd_gpu *)a)->info.bus_id,
                  ((const struct kfd_gpu *)b)->info.bus_id);
}

void kfd_gpus_read(const char *sysfs, struct kfd_gpus *out)
{
    enum { NODES_MAX = 256 };
    out->n = 0;
    for (unsigned node = 0; node < NODES_MAX && out->n < DEVICE_GPUS_MAX; node++) {
        char path[256], text[4096];
        uint64_t id;
        snprintf(path, sizeof(path), "%s/topology/nodes/%u/gpu_id", sysfs, node);
        int r = sysfs_read_number(path, &id);
        if (r == -ENOENT)
            break; /* nodes are numbered without gaps */
        /* -EPERM: a device cgroup keeps this GPU from us */
        if (r < 0 || id == 0 || id > UINT32_MAX)
            continue;
        snprintf(path, sizeof(path), "%s/topology/nodes/%u/properties", sysfs, node);
        if (sysfs_read_text(path, text, sizeof(text)) < 0)
            continue;
        struct kfd_gpu *g = &out->v[out->n++];
        *g = (struct kfd_gpu){.gpu_id = (uint32_t)id, .info = {.name = "AMD GPU"}};
        kfd_parse_node(text, g);
        g->info.memory_bytes = memory_of_node(sysfs, node);
    }
    qsort(out->v, out->n, sizeof(out->v[0]), kfd_by_bus_id);
}

int kfd_processes(const char *sysfs, struct pid_list *out)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/proc", sysfs);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : -errno;
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        uint64_t pid;
        if (parse_u64(e->d_name, 1, INT32_MAX, &pid) < 0)
            continue;
        snprintf(path, sizeof(path), "%s/proc/%llu/queues", sysfs, (unsigned long long)pid);
        DIR *queues = opendir(path);
        bool any = false;
        for (struct dirent *q; queues && !any && (q = readdir(queues));)
            any = q->d_name[0] != '.';
        if (queues)
            closedir(queues);
        if (any)
            r = pid_list_push(out, (pid_t)pid);
    }
    closedir(d);
    return r;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const struct device_group *)a)->key, y = ((const struct device_group *)b)->key;
    return (x > y) - (x < y);
}

/* A suspended queue cannot be destroyed before it is resumed, so a number that is used again never
 * stands for one that is suspended. */
static int queue_read(const char *dir, const struct kfd_gpus *gpus, struct proc_id proc,
                      uint32_t number, struct group_list *out)
{
    char path[512];
    uint64_t id, type;
    snprintf(path, sizeof(path), "%s/%u/gpuid", dir, number);
    if (sysfs_read_number(path, &id) < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%u/type", dir, number);
    if (sysfs_read_number(path, &type) < 0)
        return 0;
    unsigned gpu = 0;
    while (gpu < gpus->n && gpus->v[gpu].gpu_id != id)
        gpu++;
    bool copies = type == KFD_SDMA || type == KFD_SDMA_XGMI;
    if (gpu == gpus->n || (type != KFD_COMPUTE && !copies))
        return 0;
    struct device_group g = {
        .key = (uint64_t)(uint32_t)proc.pid << 32 | number,
        .proc = proc,
        .gpu = gpu,
        .kind = copies ? GROUP_COPY : GROUP_COMPUTE,
        .level = LEVEL_QUEUE,
        .handles = {(uint32_t)id, 0, 0, number},
        .nchannels = 1,
        .channels = {number},
    };
    return group_list_push(out, &g);
}

int kfd_queues(const char *sysfs, const struct kfd_gpus *gpus, struct proc_id proc,
               struct group_list *out)
{
    char path[400];
    size_t before = out->n;
    snprintf(path, sizeof(path), "%s/proc/%d/queues", sysfs, (int)proc.pid);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : -errno;
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        uint64_t number;
        if (parse_u64(e->d_name, 0, KFD_QUEUE_NUMBER, &number) == 0)
            r = queue_read(path, gpus, proc, (uint32_t)number, out);
    }
    closedir(d);
    if (out->n > before)
        qsort(out->v + before, out->n - before, sizeof(out->v[0]), by_key);
    return r;
}

uint64_t kfd_memory(const char *sysfs, pid_t pid, uint32_t gpu_id)
{
    char path[400];
    uint64_t bytes;
    snprintf(path, sizeof(path), "%s/proc/%d/vram_%u", sysfs, (int)pid, gpu_id);
    return sysfs_read_number(path, &bytes) < 0 ? 0 : bytes;
}
