/* Every function of libcede, given what it cannot work with: NULL for each pointer, a closed
 * handle, a forked child, the wrong moment, no size and every size, numbers beyond all limits, NaN.
 * This file: requests, pools and memory. A function of cede.map (the argument) without a row fails.
 *
 * Handles of queues, scopes, maps, caches and loops are memory that closing frees: a closed one
 * cannot be given. Threads that are cancelled are in test_cancelled.c. */
#include "bad_input.h"
#include "cede/memory.h"

#define SEEN_MAX 128

static const char *seen[SEEN_MAX];

/* Its place, or the one where it will be. */
static const char **seen_as(const char *name)
{
    unsigned i = 0;
    while (i < SEEN_MAX && seen[i] && strcmp(seen[i], name) != 0)
        i++;
    assert_true(i < SEEN_MAX);
    return &seen[i];
}

void row_seen(const char *name)
{
    *seen_as(name) = name;
}

void row(const char *name, const char *arguments, long long expected, long long result, int line)
{
    const char *text = cede_error_text();
    const size_t n = strlen(name);
    const bool named = strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0;
    const bool advises = named && strstr(text + n + 2, ": ") && !strstr(text, "e+");
    row_seen(name);
    if (result != expected || (result < 0 ? !advises : text[0] != '\0'))
        fail_msg("line %d: %s(%s) returned %lld, not %lld, and says '%s'", line, name, arguments,
                 result, expected, text);
}

#define IN_CHILD(...)                                                                              \
    do {                                                                                           \
        pid_t child = fork();                                                                      \
        if (child == 0) {                                                                          \
            __VA_ARGS__;                                                                           \
            _exit(0);                                                                              \
        }                                                                                          \
        child_ends_well(child);                                                                    \
    } while (0)

/* ---- cede.h: a handle of NULL is allowed ----------------------------------------------------- */

TEST(requests)
{
    cede_handle *c = NULL;
    struct cede_request r = {{0}};
    struct cede_statistics s;
    ROWS(cede_connect, (-EINVAL, NULL), (0, &c));
    ROWS(cede_set_class, (0, NULL, CEDE_BATCH), (-EINVAL, NULL, (enum cede_class)2),
         (-EINVAL, c, (enum cede_class)INT_MIN));
    ROWS(cede_set_weight, (0, NULL, CEDE_WEIGHT_MAX), (-EINVAL, NULL, 0),
         (-EINVAL, c, CEDE_WEIGHT_MAX + 1), (-EINVAL, c, UINT_MAX));
    ROW(0, cede_set_deadline, NULL, 1, 1);
    ROW(0, cede_set_laxity, NULL, 1, 1);
    ROW(0, cede_set_priority, NULL, 1, 1);
    for (cede_stream i = 0; i < CEDE_STREAMS_MAX; i++)
        ROW(0, cede_set_deadline, c, i, UINT64_MAX / 4096);
    ROW(-EINVAL, cede_set_deadline, c, CEDE_JOB, (uint64_t)-5);
    ROW(-ENOSPC, cede_set_deadline, c, CEDE_STREAMS_MAX, 1);
    ROW(-ENOSPC, cede_set_laxity, c, CEDE_STREAMS_MAX, 1);
    ROW(-ENOSPC, cede_set_priority, c, CEDE_STREAMS_MAX, 1);
    ROWS(cede_set_laxity, (-EINVAL, c, CEDE_JOB, UINT64_MAX), (0, c, CEDE_JOB, 1));
    ROW(0, cede_set_priority, c, CEDE_JOB, INT_MIN);
    ROW(-EINVAL, cede_request_begin, c, NULL, CEDE_JOB, 0, 0);
    ROWS(cede_request_queued, (-EINVAL, c, NULL), (-EINVAL, NULL, &r));
    ROWS(cede_request_end, (-EINVAL, c, NULL), (-EINVAL, NULL, &r));
    ROW(0, cede_request_begin, NULL, &r, CEDE_JOB, UINT64_MAX, UINT64_MAX);
    ROW(0, cede_request_end, NULL, &r);
    ROW(0, cede_request_begin, c, &r, CEDE_JOB, UINT64_MAX, UINT64_MAX);
    ROW(0, cede_request_queued, c, &r);
    ROWS(cede_request_end, (0, c, &r), (-EINVAL, c, &r));
    memset(&r, 0xA5, sizeof(r));
    ROW(-EINVAL, cede_request_queued, c, &r);
    ROW(-EINVAL, cede_request_end, c, &r);
    ROWS(cede_lead_cuda, (0, NULL, 0), (-EINVAL, NULL, UINT64_MAX), (-EINVAL, c, 10001),
         (-ENOSYS, c, 0));
    SIZES(cede_get_statistics, &s, c);
    ROW(0, cede_get_statistics, NULL, &s, sizeof(s));
    ROWS(cede_job_yield, (0, NULL, 0), (-EINVAL, NULL, 4), (-EINVAL, c, UINT_MAX),
         (-ENOTCONN, c, 0));
    ROWS(cede_job_acquire, (-EINVAL, NULL, -1), (-EINVAL, c, INT64_MIN + 1),
         (0, c, CEDE_TIMEOUT_FOREVER));
    assert_int_equal(NO_TEXT(cede_connected, NULL), 0);
    assert_int_equal(NO_TEXT(cede_wanted, NULL), 0);
    assert_true(NO_TEXT(cede_share, NULL) == 1);
    assert_string_equal(NO_TEXT(cede_error_text), "");
    NO_TEXT(cede_close, NULL);
    cede_request_begin(c, &r, CEDE_JOB, 0, 0);
    IN_CHILD(ROW(-ESTALE, cede_request_queued, c, &r); ROW(-ESTALE, cede_request_end, c, &r);
             ROW(0, cede_request_begin, c, &r, CEDE_JOB, 0, 0); ROW(0, cede_request_end, c, &r));
    cede_close(c);
}

/* ---- pools ----------------------------------------------------------------------------------- */

TEST(settings_of_pools)
{
    typedef struct cede_pool_config config;
    struct cede_pool_config good = no_gpu(1, 1);
    struct cede_pool *p, *many[CEDE_POOLS_MAX];
    ROW(-EINVAL, cede_pool_open, &good, NULL);
    REFUSED(good, ROW(-EINVAL, cede_pool_open, &bad, &p), BAD(size, 0, SIZE_MAX),
            BAD(flags, 4, UINT_MAX), BAD(devices, UINT_MAX), BAD(capacity, 0, UINT_MAX),
            BAD(max_concurrent_streams, 0, UINT_MAX), BAD(streams, UINT_MAX),
            BAD(target_utilization_percent, 101), BAD(urgent_us, UINT64_MAX),
            BAD(block_timeout_us, CEDE_TIMEOUT_DEFAULT), BAD(stream_timeout_us, -1),
            BAD(max_total_occupancy, 64.001, NAN), BAD(unknown_occupancy, 1.1, NAN),
            BAD(memory_reserve_fraction, 1, -INFINITY), BAD(max_slowdown, 0.5, NAN),
            BAD(displace, UINT_MAX), BAD(reserved, 1));
    good.devices = 4096;
    good.capacity = good.max_concurrent_streams = good.displace = 65536;
    ROW(0, cede_pool_open, &good, &p);
    ROW(0, cede_pool_close, p);
    good = no_gpu(1, 1);
    for (int i = 0; i < CEDE_POOLS_MAX; i++)
        ROW(0, cede_pool_open, &good, &many[i]);
    ROW(-EMFILE, cede_pool_open, &good, &p);
    for (int i = 0; i < CEDE_POOLS_MAX; i++)
        ROW(0, cede_pool_close, many[i]);
    NO_TEXT(cede_pool_defaults, &good);
}

/* A handle that is closed, in this process or by a fork. */
static void pool_is_closed(struct cede_pool *p, const struct cede_lease *held)
{
    struct cede_pool_statistics s;
    struct cede_profile f;
    struct cede_lease l;
    ROWS(cede_acquire, (-ESHUTDOWN, p, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l),
         (-ESHUTDOWN, p, 0, NULL, NULL, 0, &l));
    ROW(-ESHUTDOWN, cede_pool_kernel, p, "k", &l);
    ROW(-ESHUTDOWN, cede_pool_profile, p, "k", NULL, &f, sizeof(f));
    ROW(-ESHUTDOWN, cede_pool_occupancy, p, "k", 0.5);
    ROW(-ESHUTDOWN, cede_pool_get_statistics, p, 0, &s, sizeof(s));
    ROW(-ESTALE, cede_release, held);
    assert_int_equal(NO_TEXT(cede_lease_wanted, held), 0);
    ROW(-EINVAL, cede_pool_close, p);
}

static struct cede_lease take(struct cede_pool *p)
{
    struct cede_lease l = {0};
    ROW(0, cede_acquire, p, CEDE_ANY_DEVICE, NULL, NULL, 0, &l);
    return l;
}

TEST(leases)
{
    struct cede_pool_config c = no_gpu(2, 1);
    struct cede_pool *p, *const bad[] = {NULL, (void *)&c, (void *)-1L};
    const int devices[] = {INT_MIN, -2, 2, CEDE_ONLY_DEVICE(2), CEDE_ONLY_DEVICE(-1), INT_MAX};
    struct cede_pool_statistics s;
    struct cede_lease l, zero = {0}, garbage;
    struct cede_profile f;
    c.capacity = 3;
    c.displace = 0;
    ROW(0, cede_pool_open, &c, &p);
    OK(cede_pool_get_statistics(p, 0, &s, sizeof(s)));
    assert_string_equal(s.error, "");
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        ROW(-EINVAL, cede_acquire, bad[i], 0, NULL, NULL, 0, &l);
        ROW(-EINVAL, cede_pool_kernel, bad[i], "k", &l);
        ROW(-EINVAL, cede_pool_occupancy, bad[i], "k", 0.5);
        ROW(-EINVAL, cede_pool_get_statistics, bad[i], 0, &s, sizeof(s));
        ROW(bad[i] ? -EINVAL : 0, cede_pool_close, bad[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(devices); i++)
        ROW(-EINVAL, cede_acquire, p, devices[i], NULL, NULL, 0, &l);
    ROWS(cede_acquire, (-EINVAL, p, 0, NULL, NULL, -1, &l), (-EINVAL, p, 0, NULL, NULL, 0, NULL),
         (-ENOENT, p, 0, "", NULL, 0, &l), (-ENOENT, p, 0, "k", NULL, 0, &l));
    ROWS(cede_pool_kernel, (-EINVAL, p, "k", NULL), (-EINVAL, p, NULL, &l));
    ROWS(cede_pool_occupancy, (-EINVAL, p, NULL, 0.5), (-EINVAL, p, "", 0.5),
         (-EINVAL, p,
          &(char[65]){"a name of more than 63 bytes:64-----"
                      "----------------------------"}[0],
          0.5),
         (-EINVAL, p, "k", 1.1), (-EINVAL, p, "k", NAN));
    ROW(0, cede_pool_kernel, p, "conv", &l);
    ROW(-EINVAL, cede_acquire, p, 0, "conv", NULL, 0, &l);
    ROW(-EINVAL, cede_pool_profile, p, NULL, NULL, &f, sizeof(f));
    ROW(-EINVAL, cede_pool_profile, p, "conv", NULL, NULL, sizeof(f));
    ROW(-EINVAL, cede_pool_profile, p, "conv", NULL, &f, sizeof(f));
    ROW(-ENOENT, cede_pool_profile, p, "k", NULL, &f, sizeof(f));
    ROW(-ENODEV, cede_pool_profile, p, "conv", &(struct cede_shape){.threads = 1}, &f, sizeof(f));
    for (int i = 1; i < CEDE_KERNELS_MAX; i++)
        ROW(0, cede_pool_occupancy, p, (char[]){(char)('a' + i % 26), (char)('a' + i / 26), 0}, 0);
    ROW(-ENOSPC, cede_pool_occupancy, p, "one more", 0.5);
    ROWS(cede_pool_get_statistics, (-EINVAL, p, INT_MIN, &s, sizeof(s)),
         (-EINVAL, p, 2, &s, sizeof(s)));
    SIZES(cede_pool_get_statistics, &s, p, 0);
    ROWS(cede_release, (-EINVAL, NULL), (-EINVAL, &zero));
    memset(&garbage, 0xA5, sizeof(garbage));
    ROW(-ESTALE, cede_release, &garbage);
    assert_int_equal(NO_TEXT(cede_lease_wanted, NULL), 0);
    OK(cede_lease_wanted(&zero));
    OK(cede_lease_wanted(&garbage));
    const struct cede_lease first = take(p), second = take(p);
    const struct cede_shape most = {UINT_MAX, UINT_MAX, UINT_MAX, INT_MAX, UINT64_MAX, UINT64_MAX};
    ROWS(cede_acquire, (-EAGAIN, p, 0, NULL, &most, 0, &l), (-ETIMEDOUT, p, 0, NULL, &most, 1, &l));
    ROWS(cede_release, (0, &second), (-ESTALE, &second));
    IN_CHILD(pool_is_closed(p, &first));
    ROW(0, cede_pool_close, p);
    pool_is_closed(p, &first);
}

TEST(a_pool_that_is_full)
{
    struct cede_pool *p = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .capacity = 1);
    struct cede_lease l;
    take(p);
    ROW(-ENOSPC, cede_acquire, p, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l);
    ROW(0, cede_pool_close, p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_is_closed(struct cede_memory *m, const struct cede_reservation *held, int closed)
{
    struct cede_memory_statistics s;
    struct cede_memory_user u;
    struct cede_reservation r;
    struct cede_lease l;
    uint64_t a;
    char text[8];
    ROW(closed, cede_memory_can_allocate, m, 1);
    ROW(closed, cede_memory_reserve, m, 1, CEDE_TIMEOUT_FOREVER, &r);
    ROW(closed, cede_memory_allocate, m, NULL, 1, CEDE_TIMEOUT_FOREVER, &a);
    ROW(closed, cede_memory_free, m, 1);
    ROW(closed, cede_memory_pressure, m);
    ROW(closed, cede_memory_acquire, m, NULL, NULL, NULL, NULL, 0, 0, &l, &r);
    ROW(closed, cede_memory_users, m, &u, 1);
    ROW(closed, cede_memory_text, m, text, sizeof(text));
    ROW(closed, cede_memory_get_statistics, m, &s, sizeof(s));
    assert_int_equal(NO_TEXT(cede_memory_need, m, NULL, NULL), 0);
    ROW(m ? -EINVAL : 0, cede_memory_close, m);
    if (held)
        ROW(-ESTALE, cede_memory_release, held);
}

static struct cede_memory_config some_memory(void)
{
    return CONFIG(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000, .capacity = 2);
}

TEST(settings_of_memory)
{
    typedef struct cede_memory_config config;
    struct cede_memory_config c = some_memory();
    struct cede_memory *m, *many[CEDE_MEMORIES_MAX];
    NO_TEXT(cede_memory_defaults, &(struct cede_memory_config){0});
    ROW(-EINVAL, cede_memory_open, &c, NULL);
    REFUSED(c, ROW(-EINVAL, cede_memory_open, &bad, &m), BAD(size, 0), BAD(flags, UINT_MAX),
            BAD(device, -1), BAD(capacity, 0, UINT_MAX),
            BAD(block_timeout_us, CEDE_TIMEOUT_DEFAULT), BAD(polling_us, 0),
            BAD(reserve_bytes, 1000, UINT64_MAX), BAD(reserve_fraction, 1, NAN),
            BAD(high, 0, 0.95, NAN), BAD(critical, 1.1, NAN));
    c.total_bytes = 0;
    ROW(-ENODEV, cede_memory_open, &c, &m);
    c.total_bytes = UINT64_MAX;
    for (int i = 0; i < CEDE_MEMORIES_MAX; i++)
        ROW(0, cede_memory_open, &c, &many[i]);
    ROW(-EMFILE, cede_memory_open, &c, &m);
    for (int i = 0; i < CEDE_MEMORIES_MAX; i++)
        ROW(0, cede_memory_close, many[i]);
}

TEST(room)
{
    struct cede_memory_config c = some_memory();
    struct cede_pool *p = open_one();
    struct cede_memory *m;
    struct cede_memory_statistics s;
    struct cede_memory_user u;
    struct cede_reservation held, r, zero = {0}, garbage;
    const struct cede_range range = {UINT64_MAX, UINT64_MAX, UINT_MAX};
    struct cede_lease l;
    uint64_t a;
    char text[1] = "x";
    ROW(0, cede_memory_open, &c, &m);
    memory_is_closed(NULL, NULL, -EINVAL);
    memory_is_closed((void *)&c, NULL, -EINVAL);
    ROW(0, cede_memory_can_allocate, m, UINT64_MAX);
    ROWS(cede_memory_reserve, (-EINVAL, m, 0, 0, &r), (-EINVAL, m, 1, -1, &r),
         (-EINVAL, m, 1, 0, NULL), (-ENOMEM, m, UINT64_MAX, CEDE_TIMEOUT_FOREVER, &r),
         (0, m, 500, 0, &held), (-ENOMEM, m, 500, 1, &r));
    ROWS(cede_memory_allocate, (-EINVAL, m, NULL, 0, 0, &a), (-EINVAL, m, NULL, 1, -1, &a),
         (-EINVAL, m, NULL, 1, 0, NULL), (-ENODEV, m, &held, UINT64_MAX, 0, &a));
    ROWS(cede_memory_free, (-ENOENT, m, 0), (-ENOENT, m, UINT64_MAX));
    ROWS(cede_memory_release, (-EINVAL, NULL), (-EINVAL, &zero));
    memset(&garbage, 0xA5, sizeof(garbage));
    ROW(-ESTALE, cede_memory_release, &garbage);
    ROWS(cede_memory_users, (-ENOTSUP, m, &u, 1), (-EINVAL, m, NULL, UINT_MAX),
         (-ENOTSUP, m, NULL, 0));
    ROWS(cede_memory_text, (-EINVAL, m, NULL, 1), (-EINVAL, m, text, 0), (0, m, text, 1));
    assert_int_equal(text[0], '\0');
    SIZES(cede_memory_get_statistics, &s, m);
    assert_string_equal(s.error, "");
    HAS(s, (has_gpu, 0), (timed_out, 1));
    ROWS(cede_memory_acquire, (-EINVAL, m, NULL, NULL, NULL, NULL, 0, 0, &l, &r),
         (-EINVAL, m, p, NULL, NULL, NULL, 0, -1, &l, &r),
         (-EINVAL, m, p, NULL, NULL, NULL, 0, 0, NULL, &r),
         (-EINVAL, m, p, NULL, NULL, NULL, 0, 0, &l, NULL),
         (-EINVAL, m, p, NULL, NULL, NULL, 1, 0, &l, &r),
         (-EINVAL, m, p, NULL, NULL, &range, UINT_MAX, 0, &l, &r),
         (-ENOENT, m, p, "k", NULL, NULL, 0, 0, &l, &r),
         (-ENOMEM, m, p, NULL, &(struct cede_shape){.memory_bytes = UINT64_MAX}, NULL, 0,
          CEDE_TIMEOUT_FOREVER, &l, &r),
         (0, m, p, NULL, NULL, &range, 1, 0, &l, &r));
    ROW(-ENOSPC, cede_memory_reserve, m, 1, 0, &zero);
    ROWS(cede_memory_release, (0, &r), (-ESTALE, &r));
    IN_CHILD(memory_is_closed(m, &held, -ESHUTDOWN));
    ROW(0, cede_pool_close, p);
    ROW(-ESHUTDOWN, cede_memory_acquire, m, p, NULL, NULL, NULL, 0, 0, &l, &r);
    ROW(0, cede_memory_close, m);
    memory_is_closed(m, &held, -ESHUTDOWN);
}

/* ---- the list of functions ------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    char name[128];
    FILE *map = argc == 2 ? fopen(argv[1], "re") : NULL;
    setenv("CEDE_DIR", "/tmp/cede-test-nowhere", 1);
    int failed = test_run(NULL, NULL);
    while (map && fscanf(map, "%*[^c]%127[a-z_]", name) >= 0) {
        if (strncmp(name, "cede_", 5) == 0 && !*seen_as(name) && ++failed)
            print_error("%s() has no row\n", name);
    }
    return failed || !map;
}
