/* Shows what the driver's context-switch trace tells about the programs on a GPU, step by step with
 * every status, so that one run on a new driver or chip tells where it stops:
 *   nvidia_trace [-U UUID] [-s SECONDS] [-i INTERVAL_MS] [-n RECORDS] [-c CLASS] [-r RECORDS_SHOWN]
 *                [-N] [-f] [-u]
 *       -c 0x90ce (memory without a device) or 0x3e (system memory), -N keep the newest records,
 *       -f flush before each read, -u only this user's programs
 *   nvidia_trace -m PID    words of a program's mappings of /dev/nvidiactl that count: reads only
 * Needs nothing but libc, so that it can be built where it is to run. Uses a client of its own: it
 * must not touch any other program's objects. Exits 77 where there is no such GPU. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct control {
    uint32_t client, object, cmd, flags;
    uint64_t params;
    uint32_t size, status;
};
struct alloc {
    uint32_t root, parent, object, class;
    uint64_t params;
    uint32_t size, status;
};
struct map { /* NVOS33 and a descriptor */
    uint32_t client, device, memory, pad;
    uint64_t offset, length, address;
    uint32_t status, flags;
    int32_t fd, pad2;
};
struct device_params {
    uint32_t id, share, target_client, target_device, flags, pad;
    uint64_t va_size, va_start, va_limit;
    uint32_t va_mode, pad2;
};
struct memory_params {
    uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, compr, zcull, pad;
    uint64_t low, high, size, alignment, offset, limit, address;
    uint32_t ctag, vaspace, internal, tag, node, pad2;
};
struct buffer_params { /* NV_EVENT_BUFFER */
    uint64_t header, records;
    uint32_t record_size, record_count;
    uint64_t vardata;
    uint32_t vardata_size, records_threshold;
    uint64_t notification;
    uint32_t vardata_threshold, subdevice, flags, header_memory, record_memory, vardata_memory;
};
struct bind_params { /* FECS_BIND_EVTBUF_FOR_UID_V2 */
    uint32_t buffer, record_size, detail, filter;
    uint8_t all_users, pad[3];
    uint32_t reason;
};
struct enable_params {
    uint8_t enable, pad[3];
    uint32_t flags;
};
struct header {
    uint32_t get, put;
    uint64_t count, dropped, vardata_dropped;
};
struct record {
    uint16_t type, subtype;
    uint32_t vardata;
    uint8_t tag, vmid;
    uint16_t seqno;
    uint32_t context, pid;
    uint16_t reserved;
    uint8_t gi, ci;
    uint64_t ns;
};
_Static_assert(sizeof(struct map) == 56, "NVOS33");
_Static_assert(sizeof(struct device_params) == 56, "NV0080");
_Static_assert(sizeof(struct memory_params) == 128, "memory");
_Static_assert(sizeof(struct buffer_params) == 72, "event buffer");
_Static_assert(sizeof(struct bind_params) == 24, "bind");
_Static_assert(sizeof(struct record) == 32, "record");

#define IOCTL(nr, type) _IOWR('F', nr, type)
enum { DEVICE = 0xcede0001, SUBDEVICE, HEADER, RECORDS, BUFFER };

static int ctl = -1;
static uint32_t client;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint32_t tell(const char *what, int r, uint32_t status, uint64_t t)
{
    if (r < 0)
        printf("%-34s ioctl: %s\n", what, strerror(errno));
    else
        printf("%-34s status 0x%x, %.0f us\n", what, status,
               (double)(now_ns(CLOCK_MONOTONIC) - t) / 1000);
    return r < 0 ? UINT32_MAX : status;
}

static uint32_t rm_alloc(const char *what, uint32_t parent, uint32_t object, uint32_t class,
                         void *params, uint32_t size)
{
    struct alloc a = {client, parent, object, class, (uintptr_t)params, size, UINT32_MAX};
    uint64_t t = now_ns(CLOCK_MONOTONIC);
    int r = ioctl(ctl, IOCTL(0x2B, struct alloc), &a);
    if (r == 0 && a.status == 0 && !client)
        client = a.object;
    return tell(what, r, a.status, t);
}

static uint32_t rm_control(const char *what, uint32_t object, uint32_t cmd, void *params,
                           uint32_t size)
{
    struct control c = {client, object, cmd, 0, (uintptr_t)params, size, UINT32_MAX};
    uint64_t t = now_ns(CLOCK_MONOTONIC);
    int r = ioctl(ctl, IOCTL(0x2A, struct control), &c);
    return what ? tell(what, r, c.status, t) : r < 0 ? UINT32_MAX : c.status;
}

static uint32_t rm_memory(const char *what, uint32_t class, uint32_t object, uint64_t size)
{
    struct memory_params m = {.size = size};
    m.attr = 1U << 29 | (class == 0x3e ? 1U << 25 | 2U << 27 : 0); /* cached; PCI, contiguous */
    m.attr2 = 1U << 22;                                            /* user read-only */
    m.owner = 0xcede;
    m.flags = class == 0x3e ? 1U << 15 : 0; /* no GPU mapping needed */
    return rm_alloc(what, class == 0x3e ? DEVICE : client, object, class, &m, sizeof(m));
}

static volatile void *rm_map(const char *what, uint32_t class, uint32_t object, uint64_t size)
{
    int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    struct map m = {client,
                    class == 0x3e ? DEVICE : client,
                    object,
                    0,
                    0,
                    size,
                    0,
                    UINT32_MAX,
                    1 /* read-only */,
                    fd,
                    0};
    uint64_t t = now_ns(CLOCK_MONOTONIC);
    int r = ioctl(ctl, IOCTL(0x4E, struct map), &m);
    if (tell(what, r, m.status, t))
        return NULL;
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    printf("%-34s %s\n", "  mmap", p == MAP_FAILED ? strerror(errno) : "ok");
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* Device instances are not the numbers of device files. */
static int find_gpu(const char *uuid)
{
    for (uint32_t id = 0; id < 32; id++) {
        struct device_params device = {.id = id};
        uint32_t sub = 0;
        if (rm_alloc("device", client, DEVICE, 0x80, &device, sizeof(device)))
            continue;
        struct {
            uint32_t index, flags, length;
            char text[256];
        } gid = {0};
        if (rm_alloc("subdevice", DEVICE, SUBDEVICE, 0x2080, &sub, sizeof(sub)) == 0 &&
            rm_control("uuid", SUBDEVICE, 0x2080014A, &gid, sizeof(gid)) == 0) {
            printf("  instance %u is %.64s\n", id, gid.text);
            if (strncmp(uuid, gid.text, strlen(uuid)) == 0)
                return 0;
        }
        struct {
            uint32_t root, parent, object, status;
        } f = {client, client, DEVICE, 0};
        ioctl(ctl, _IOWR('F', 0x29, f), &f);
    }
    printf("no such GPU\n");
    return -1;
}

struct who {
    uint32_t pid, context;
    unsigned starts, ends;
    uint64_t since, busy;
    uint64_t total_starts, total_busy;
} who[64];
static unsigned nwho;

static struct who *find(const struct record *r)
{
    for (unsigned i = 0; i < nwho; i++) {
        if (who[i].pid == r->pid && who[i].context == r->context)
            return &who[i];
    }
    if (nwho == 64)
        return NULL;
    who[nwho] = (struct who){.pid = r->pid, .context = r->context};
    return &who[nwho++];
}

static void take(const struct record *r)
{
    struct who *w = find(r);
    if (!w)
        return;
    if (r->tag == 6 || r->tag == 5) {
        w->starts++;
        w->total_starts++;
        w->since = r->ns;
    } else if ((r->tag == 7 || r->tag == 3) && w->since) {
        w->ends++;
        w->busy += r->ns - w->since;
        w->total_busy += r->ns - w->since;
        w->since = 0;
    }
}

static void name_of(uint32_t pid, char *out, size_t size)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(out, (int)size, f))
        snprintf(out, size, "(not in /proc)");
    out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

static int memory_words(long pid)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%ld/mem", pid);
    int mem = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%ld/maps", pid);
    FILE *maps = fopen(path, "re");
    if (mem < 0 || !maps) {
        perror(path);
        return 1;
    }
    unsigned n = 0, readable = 0;
    while (fgets(line, sizeof(line), maps)) {
        uint64_t a, b;
        if (!strstr(line, "/dev/nvidiactl") || sscanf(line, "%" SCNx64 "-%" SCNx64, &a, &b) != 2)
            continue;
        n++;
        size_t size = b - a > 65536 ? 65536 : b - a;
        uint32_t *v[3];
        bool ok = true;
        uint64_t t = now_ns(CLOCK_MONOTONIC);
        for (int k = 0; k < 3; k++) {
            v[k] = calloc(1, size);
            ok &= v[k] && pread(mem, v[k], size, (off_t)a) == (ssize_t)size;
            if (!ok && k == 0)
                printf("%" PRIx64 " %zu bytes: %s\n", a, (size_t)(b - a), strerror(errno));
            if (ok && k < 2)
                usleep(100000);
        }
        unsigned changed = 0;
        for (size_t i = 0; ok && i < size / 4; i++) {
            int32_t d1 = (int32_t)(v[1][i] - v[0][i]), d2 = (int32_t)(v[2][i] - v[1][i]);
            if ((d1 || d2) && changed++ < 6)
                printf("%" PRIx64 "+%zx: %u %+d %+d\n", a, i * 4, v[0][i], d1, d2);
        }
        readable += ok;
        if (ok && changed)
            printf("%" PRIx64 " %zu bytes: %u words change, %.0f us\n", a, (size_t)(b - a), changed,
                   (double)(now_ns(CLOCK_MONOTONIC) - t) / 1000);
        for (int k = 0; k < 3; k++)
            free(v[k]);
    }
    printf("%u mappings, %u readable\n", n, readable);
    fclose(maps);
    close(mem);
    return 0;
}

int main(int argc, char **argv)
{
    const char *uuid = "";
    uint32_t count = 8192, class = 0x90ce, show = 40;
    double seconds = 2, interval_ms = 100;
    bool newest = false, flush = false, one_user = false;
    for (int o; (o = getopt(argc, argv, "U:s:i:n:c:r:Nfum:")) != -1;) {
        switch (o) {
        case 'U':
            uuid = optarg;
            break;
        case 's':
            seconds = atof(optarg);
            break;
        case 'i':
            interval_ms = atof(optarg);
            break;
        case 'n':
            count = (uint32_t)atoi(optarg);
            break;
        case 'c':
            class = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 'r':
            show = (uint32_t)atoi(optarg);
            break;
        case 'N':
            newest = true;
            break;
        case 'f':
            flush = true;
            break;
        case 'u':
            one_user = true;
            break;
        case 'm':
            return memory_words(atol(optarg));
        default:
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    int dev = -1; /* held open: a GPU that nobody has open is shut down */
    for (unsigned i = 0; i < 64 && dev < 0; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/dev/nvidia%u", i);
        dev = open(path, O_RDWR | O_CLOEXEC);
    }
    if (ctl < 0 || dev < 0) {
        printf("no NVIDIA GPU: %s\n", strerror(errno));
        return 77;
    }
    uint64_t size = ((uint64_t)count * sizeof(struct record) + 4095) & ~4095ULL;
    if (rm_alloc("client", 0, 0, 0x41, NULL, 0) || find_gpu(uuid) ||
        rm_memory("header memory", class, HEADER, 4096) ||
        rm_memory("record memory", class, RECORDS, size))
        return 1;
    struct buffer_params b = {.record_size = sizeof(struct record),
                              .record_count = count,
                              .subdevice = SUBDEVICE,
                              .header_memory = HEADER,
                              .record_memory = RECORDS};
    if (rm_alloc("event buffer", client, BUFFER, 0x90cd, &b, sizeof(b)))
        return 1;
    volatile struct header *h = rm_map("map of the header", class, HEADER, 4096);
    volatile struct record *v = rm_map("map of the records", class, RECORDS, size);
    if (!h || !v)
        return 1;
    uint32_t sizes[] = {24, 32, 40};
    uint32_t bound = UINT32_MAX;
    for (unsigned i = 0; i < 3 && bound; i++) {
        struct bind_params p = {
            .buffer = BUFFER, .record_size = sizes[i], .detail = 0, .all_users = !one_user};
        bound = rm_control("bind the switches (V2)", SUBDEVICE, 0x20801238, &p, sizeof(p));
        printf("  record size %u, reason %u\n", sizes[i], p.reason);
    }
    struct enable_params e = {.enable = 1, .flags = newest ? 2 : 1};
    if (bound || rm_control("enable", BUFFER, 0x90cd0101, &e, sizeof(e)))
        return 1;
    if (rm_control("flush", BUFFER, 0x90cd0104, NULL, 0))
        flush = false;

    uint64_t start = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t flush_ns = 0, get_ns = 0, batch_gap_max = 0, first_ns = 0, last_ns = 0, dropped = 0;
    uint32_t get = 0, total = 0, gaps = 0, rounds = 0, moved = 0, types[256] = {0};
    uint16_t next = 0;
    uint64_t last_move = start;
    while ((double)(now_ns(CLOCK_MONOTONIC) - start) < seconds * 1e9) {
        usleep((useconds_t)(interval_ms * 1000));
        uint64_t t = now_ns(CLOCK_MONOTONIC);
        if (flush && rm_control(NULL, BUFFER, 0x90cd0104, NULL, 0))
            flush = false;
        flush_ns += now_ns(CLOCK_MONOTONIC) - t;
        rounds++;
        uint32_t put = __atomic_load_n(&h->put, __ATOMIC_ACQUIRE);
        if (put >= count) {
            printf("put is %u of %u\n", put, count);
            break;
        }
        dropped += h->dropped;
        t = now_ns(CLOCK_MONOTONIC);
        if (put != get) {
            moved++;
            if (t - last_move > batch_gap_max)
                batch_gap_max = t - last_move;
            last_move = t;
        }
        bool any = put != get;
        for (; get != put; get = (get + 1) % count) {
            struct record r;
            memcpy(&r, (const void *)(uintptr_t)&v[get], sizeof(r));
            types[r.tag]++;
            if (total++ && r.seqno != next)
                gaps++;
            next = (uint16_t)(r.seqno + 1);
            if (!first_ns)
                first_ns = r.ns;
            last_ns = r.ns;
            if (total <= show)
                printf("type %u/%u tag %u seq %u context %u pid %u ns %" PRIu64 "\n", r.type,
                       r.subtype, r.tag, r.seqno, r.context, r.pid, r.ns);
            take(&r);
        }
        if (any && !newest) {
            uint32_t g[2] = {get, 0};
            t = now_ns(CLOCK_MONOTONIC);
            if (rm_control(NULL, BUFFER, 0x90cd0102, g, sizeof(g)))
                printf("update of get failed\n");
            get_ns += now_ns(CLOCK_MONOTONIC) - t;
        }
        if (rounds <= 30) {
            printf("%6.0f ms:", (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e6);
            for (unsigned i = 0; i < nwho; i++) {
                printf("  %u/%u %u starts %u ends %.1f ms%s", who[i].pid, who[i].context,
                       who[i].starts, who[i].ends, (double)who[i].busy / 1e6,
                       who[i].since ? " on" : "");
                who[i].starts = who[i].ends = 0;
                who[i].busy = 0;
            }
            printf("\n");
        }
    }
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double wall = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;
    printf("%u records in %.2f s (their clock: %.2f s), %u gaps, %" PRIu64 " dropped\n", total,
           wall, (double)(last_ns - first_ns) / 1e9, gaps, dropped);
    printf("%u of %u reads had new ones, longest without %.0f ms\n", moved, rounds,
           (double)batch_gap_max / 1e6);
    printf("CPU %.3f %% of a core; flush %.1f us, update of get %.1f us each\n",
           (double)cpu / wall / 1e7, rounds ? (double)flush_ns / rounds / 1000 : 0,
           moved ? (double)get_ns / moved / 1000 : 0);
    for (unsigned i = 0; i < 256; i++) {
        if (types[i])
            printf("tag %u: %u\n", i, types[i]);
    }
    for (unsigned i = 0; i < nwho; i++) {
        char name[64];
        name_of(who[i].pid, name, sizeof(name));
        printf("pid %u context %u %s: %.1f starts/s, busy %.4f\n", who[i].pid, who[i].context, name,
               (double)who[i].total_starts / wall, (double)who[i].total_busy / wall / 1e9);
    }
    return 0;
}
