/* `cede run --memory`: waits until there is room on the GPU for what the command is going to take,
 * while the daemon swaps others out. Decides nothing. */
#include "cli/room.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

#define LOOK_NS 100000000L

int room_parse(const char *text, struct request *r)
{
    char size[32];
    const char *at = strchr(text, '@');
    size_t n = at ? (size_t)(at - text) : strlen(text);
    uint64_t gpu = 0;
    int ok = n < sizeof(size) ? 0 : -EINVAL;
    snprintf(size, sizeof(size), "%.*s", (int)n, text);
    if (ok == 0)
        ok = parse_bytes(size, PROTO_BYTES_MAX, &r->memory_bytes);
    if (ok == 0 && at)
        ok = parse_u64(at + 1, 0, DEVICE_GPUS_MAX - 1, &gpu);
    if (ok < 0 || !r->memory_bytes)
        return cli_usage("run",
                         "bad memory '%s': use bytes, or a size such as 500M or 40G, and @N "
                         "for another GPU than 0",
                         text);
    r->gpu = (uint32_t)gpu;
    return -1;
}

static bool wanting(const json_t *job)
{
    return json_is_false(json_object_get(job, "room"));
}

int room_wait(struct client *c, const struct request *r, const json_t *reply, uint64_t wait_us,
              struct error *err)
{
    const json_t *job = json_object_get(reply, "job");
    const json_int_t number = json_integer_value(json_object_get(job, "number"));
    const struct request look = {.op = OP_PS, .number = (uint64_t)number - 1};
    uint64_t until = monotonic_ns() + wait_us * NSEC_PER_USEC;
    bool wants = wanting(job) && number > 0;
    if (wants)
        cli_error("waiting for %.1f GiB on GPU %u, at most %llu s",
                  (double)r->memory_bytes / (1U << 30), r->gpu,
                  (unsigned long long)(wait_us / 1000000));
    while (wants) {
        json_t *page;
        if (monotonic_ns() >= until)
            return error_set(err, -ETIMEDOUT,
                             "%.1f GiB were not free on GPU %u within %llu s; `cede ps` shows "
                             "which jobs hold memory, and --wait waits longer",
                             (double)r->memory_bytes / (1U << 30), r->gpu,
                             (unsigned long long)(wait_us / 1000000));
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        int code = client_call(c, &look, &page, err);
        if (code < 0)
            return code;
        const json_t *first = json_array_get(json_object_get(page, "jobs"), 0);
        wants = json_integer_value(json_object_get(first, "number")) == number && wanting(first);
        json_decref(page);
    }
    return 0;
}
