/* Reads GPUs, processes with queues, their queues and memory from the AMD compute driver's sysfs.
 * Everything can disappear between two reads; what is gone is left out.
 *
 *   topology/nodes/N/{gpu_id,name,properties,mem_banks/M/properties}   gpu_id 0: a CPU
 *   proc/PID/queues/Q/{gpuid,type,size}
 *   proc/PID/vram_GPUID
 * proc/PID_CONTEXT are further contexts of a process, which the debug trap does not reach. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "gpu/amd/kfd.h"

int kfd_parse_number(const char *text, uint64_t *out)
{
    char digits[24];
    int end = 0;
    if (sscanf(text, "%23[0-9]%n", digits, &end) != 1 ||
        (text[end] && (text[end] != '\n' || text[end + 1])))
        return -EINVAL;
    return parse_u64(digits, 0, UINT64_MAX, out) < 0 ? -EINVAL : 0;
}

static PRINTF_LIKE(3, 4) int sysfs_read(char *buf, size_t size, const char *fmt, ...)
{
    char path[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    size_t n = fread(buf, 1, size - 1, f);
    buf[n] = '\0';
    return ferror(f) ? -EIO : 0;
}

static void node_value(struct kfd_gpu *g, const char *key, uint64_t value, uint64_t bus[2])
{
    if (strcmp(key, "capability") == 0) {
        const uint64_t need = KFD_CAP_TRAP_DEBUG | KFD_CAP_DEBUG_FIRMWARE;
        g->info.caps = (value & need) == need ? GPU_CAP_SUSPEND : 0;
    } else if (strcmp(key, "gfx_target_version") == 0 && value && value <= 999999) {
        unsigned v = (unsigned)value; /* 90010: gfx90a */
        snprintf(g->info.name, sizeof(g->info.name), "AMD gfx%u%x%x", v / 10000, v / 100 % 100,
                 v % 100);
    } else if (strcmp(key, "unique_id") == 0 && value) {
        snprintf(g->info.uuid, sizeof(g->info.uuid), "GPU-%016llx", (unsigned long long)value);
    } else if (strcmp(key, "domain") == 0) {
        bus[0] = value & 0xffff;
    } else if (strcmp(key, "location_id") == 0) {
        bus[1] = value;
    }
}

/* Reads the next line "key number"; false at the end. */
static bool sysfs_next_line(const char **text, char key[48], uint64_t *value)
{
    while (**text) {
        const char *line = *text;
        size_t n = strcspn(line, "\n");
        char number[24];
        int end = 0;
        *text += n + (line[n] == '\n');
        if (sscanf(line, "%47[^ \n]%*1[ ]%23[0-9]%n", key, number, &end) == 2 && (size_t)end == n &&
            parse_u64(number, 0, UINT64_MAX, value) == 0)
            return true;
    }
    return false;
}

void kfd_parse_node(const char *text, struct kfd_gpu *out)
{
    char key[48];
    uint64_t value, bus[2] = {0, 0};
    while (sysfs_next_line(&text, key, &value))
        node_value(out, key, value, bus);
    snprintf(out->info.bus_id, sizeof(out->info.bus_id), "%04x:%02x:%02x.%x", (unsigned)bus[0],
             (unsigned)(bus[1] >> 8 & 0xff), (unsigned)(bus[1] >> 3 & 0x1f),
             (unsigned)(bus[1] & 7));
}

static uint64_t memory_of_node(const char *sysfs, unsigned node)
{
    enum { HEAP_PUBLIC = 1, HEAP_PRIVATE = 2 };
    uint64_t sum = 0;
    for (unsigned bank = 0; bank < 16; bank++) {
        char text[1024], key[48];
        uint64_t value, heap = 0, size = 0;
        const char *p = text;
        if (sysfs_read(text, sizeof(text), "%s/topology/nodes/%u/mem_banks/%u/properties", sysfs,
                       node, bank) < 0)
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
        char text[4096];
        uint64_t id;
        int r = sysfs_read(text, sizeof(text), "%s/topology/nodes/%u/gpu_id", sysfs, node);
        if (r == -ENOENT)
            break; /* nodes are numbered without gaps */
        /* An error means that a device cgroup hides this GPU from us. */
        if (r < 0 || kfd_parse_number(text, &id) < 0 || id == 0 || id > UINT32_MAX ||
            sysfs_read(text, sizeof(text), "%s/topology/nodes/%u/properties", sysfs, node) < 0)
            continue;
        struct kfd_gpu *g = &out->v[out->n++];
        *g = (struct kfd_gpu){.gpu_id = (uint32_t)id, .info = {.name = "AMD GPU"}};
        kfd_parse_node(text, g);
        g->info.memory_bytes = memory_of_node(sysfs, node);
    }
    qsort(out->v, out->n, sizeof(out->v[0]), kfd_by_bus_id);
}

/* Lists the entries of a directory whose names are numbers, ascending. A missing directory counts
 * as empty. */
static int numbers_in(const char *path, struct pid_list *out)
{
    int r = 0;
    uint64_t number;
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : -errno;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (parse_u64(e->d_name, 0, INT32_MAX, &number) == 0)
            r = pid_list_push(out, (pid_t)number);
    }
    closedir(d);
    if (out->n)
        qsort(out->v, out->n, sizeof(out->v[0]), compare_int32);
    return r;
}

static int queues_of(const char *sysfs, pid_t pid, struct pid_list *out)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/proc/%d/queues", sysfs, (int)pid);
    return numbers_in(path, out);
}

int kfd_processes(const char *sysfs, struct pid_list *out)
{
    char path[400];
    _cleanup_(pid_list_free) struct pid_list all = {0};
    snprintf(path, sizeof(path), "%s/proc", sysfs);
    int r = numbers_in(path, &all);
    for (size_t i = 0; r == 0 && i < all.n; i++) {
        struct pid_list queues = {0};
        if (queues_of(sysfs, all.v[i], &queues) == 0 && queues.n)
            r = pid_list_push(out, all.v[i]);
        pid_list_free(&queues);
    }
    return r;
}

/* Reads one queue. Its number identifies it while it is suspended, because a suspended queue cannot
 * be destroyed before it is resumed. */
static bool queue_read(const char *sysfs, const struct kfd_gpus *gpus, pid_t pid, uint32_t number,
                       struct kfd_queue *out)
{
    char text[64];
    uint64_t id, type;
    unsigned gpu = 0;
    if (sysfs_read(text, sizeof(text), "%s/proc/%d/queues/%u/gpuid", sysfs, pid, number) < 0 ||
        kfd_parse_number(text, &id) < 0 ||
        sysfs_read(text, sizeof(text), "%s/proc/%d/queues/%u/type", sysfs, pid, number) < 0 ||
        kfd_parse_number(text, &type) < 0)
        return false;
    while (gpu < gpus->n && gpus->v[gpu].gpu_id != id)
        gpu++;
    *out = (struct kfd_queue){number, gpu, type == KFD_SDMA || type == KFD_SDMA_XGMI};
    return gpu < gpus->n && (type == KFD_COMPUTE || out->copies);
}

int kfd_queues(const char *sysfs, const struct kfd_gpus *gpus, pid_t pid, struct kfd_queues *out)
{
    _cleanup_(pid_list_free) struct pid_list numbers = {0};
    int r = queues_of(sysfs, pid, &numbers);
    out->n = 0;
    for (size_t i = 0; r == 0 && i < numbers.n && out->n < KFD_QUEUES_MAX; i++) {
        uint32_t number = (uint32_t)numbers.v[i];
        if ((number & ~KFD_QUEUE_NUMBER) == 0 &&
            queue_read(sysfs, gpus, pid, number, &out->v[out->n]))
            out->n++;
    }
    return r;
}

uint64_t kfd_memory(const char *sysfs, pid_t pid, uint32_t gpu_id)
{
    char text[64];
    uint64_t bytes;
    if (sysfs_read(text, sizeof(text), "%s/proc/%d/vram_%u", sysfs, (int)pid, gpu_id) < 0 ||
        kfd_parse_number(text, &bytes) < 0)
        return 0;
    return bytes;
}
