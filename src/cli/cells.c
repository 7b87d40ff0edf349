/* See cells.h. */
#include "cli/cells.h"

#include <math.h>
#include <string.h>

#include "api/proto.h"
#include "base/gpu_parts.h"
#include "base/json_text.h"
#include "base/text.h"
#include "who/users.h"

void cell_time(char buf[static CELL], json_int_t us)
{
    if (us <= 0)
        snprintf(buf, CELL, "-");
    else if (us < 1000)
        snprintf(buf, CELL, "%lldus", (long long)us);
    else if (us < 999500) /* %.3g of more is 1e+03 */
        snprintf(buf, CELL, "%.3gms", (double)us / 1e3);
    else
        snprintf(buf, CELL, us < 999500000 ? "%.3gs" : "%.0fs", (double)us / 1e6);
}

static void limits_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const json_int_t min = json_get_int(s->job, "gpu_min"), max = json_get_int(s->job, "gpu_max");
    if (min && max)
        snprintf(buf, CELL, "%lld-%lld%%", (long long)min, (long long)max);
    else if (min || max)
        snprintf(buf, CELL, min ? ">=%lld%%" : "<=%lld%%", (long long)(min ? min : max));
    else
        snprintf(buf, CELL, "-");
}

static void bytes_text(char *buf, json_int_t bytes)
{
    static const char units[] = "BKMGT";
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1000 && u + 2 < sizeof(units); u++)
        v /= 1024;
    if (bytes <= 0)
        snprintf(buf, CELL, "-");
    else
        snprintf(buf, CELL, v < 10 && u ? "%.1f%c" : "%.0f%c", v, units[u]);
}

/* GPU memory of a job; if it waits for room, or took more than it stated, also what it stated. */
void cell_memory(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const json_t *job = s->job, *m = json_object_get(job, "memory");
    const json_int_t said = json_get_int(m, "said_bytes"), held = json_get_int(m, "held_bytes");
    bytes_text(buf, json_get_int(job, "memory_bytes"));
    if (!m || (held <= said && !json_object_get(m, "place")))
        return;
    char text[CELL];
    bytes_text(buf, held);
    bytes_text(text, said);
    snprintf(buf + strlen(buf), CELL - strlen(buf), "/%.16s", text);
}

/* A process chooses its name, so characters that could control a terminal are replaced. */
static void name_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const char *name = json_get_text(s->job, c->key);
    snprintf(buf, CELL, "%s", name ? name : "?");
    bool digits = buf[0] && strspn(buf, "0123456789") == strlen(buf);
    if (digits || buf[0] == '#' || proto_name_ok(buf))
        return;
    text_printable(buf);
}

static void append(char *buf, const char *text)
{
    size_t n = strlen(buf);
    snprintf(buf + n, CELL - n, "%s%s", n ? "," : "", text);
}

/* The indices of a job's GPUs; instances, and with `labels` all devices, have their labels. */
void cell_gpus(char buf[static CELL], const struct column *c, const struct shown *s)
{
    buf[0] = '\0';
    for_each_json (gpu, json_object_get(s->job, "gpus")) {
        char text[24];
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(gpu));
        for_each_json (device, s->devices) {
            const char *label = json_get_text(device, "label");
            if (label && (s->labels || strchr(label, ':')) &&
                json_equal(json_object_get(device, "index"), gpu))
                snprintf(text, sizeof(text), "%s", label);
        }
        append(buf, text);
    }
    if (!buf[0])
        snprintf(buf, CELL, "-");
}

static void levels_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const json_t *levels = json_object_get(s->job, c->key);
    buf[0] = '\0';
    for_each_json (level, levels) {
        const char *name = device_level_name((unsigned)json_integer_value(level));
        if (name && !strstr(buf, name))
            append(buf, name);
    }
    if (!buf[0])
        snprintf(buf, CELL, "-");
}

void cell_speed(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const json_t *mps = json_object_get(s->job, "mps"), *latency = json_object_get(s->job, "speed");
    const json_t *speed = json_object_get(mps, "speed"), *e = json_object_get(mps, "speed_error");
    if (json_is_true(json_object_get(mps, "profiling")))
        snprintf(buf, CELL, "...");
    else if (!json_is_number(speed) && json_is_number(latency))
        snprintf(buf, CELL, "%.0f%%", json_number_value(latency) * 100);
    else if (!json_is_number(speed))
        snprintf(buf, CELL, "-");
    else if (json_number_value(e) > SPEED_ERROR_MAX)
        snprintf(buf, CELL, "?");
    else
        snprintf(buf, CELL, "%.0f%%", json_number_value(speed) * 100);
}

bool cell_has_cap(const json_t *devices, json_int_t gpu, const char *cap)
{
    for_each_json (device, devices) {
        if (json_get_int(device, "index") == gpu &&
            json_has_text(json_object_get(device, "caps"), cap))
            return true;
    }
    return false;
}

/* Whether the driver reports GPU time for one of the job's GPUs. */
static bool tells_busy(const json_t *job, const json_t *devices)
{
    for_each_json (gpu, json_object_get(job, "gpus")) {
        if (cell_has_cap(devices, json_integer_value(gpu), "usage"))
            return true;
    }
    return false;
}

/* The part of its GPUs' time: a job on several GPUs is at 100 % when all of them work for it. */
static void busy_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const json_t *busy = json_object_get(s->job, c->key);
    const size_t gpus = json_array_size(json_object_get(s->job, "gpus"));
    if (json_is_number(busy))
        snprintf(buf, CELL, "%.0f%%",
                 fmin(json_number_value(busy) / fmax((double)gpus, 1), 1) * 100);
    else
        snprintf(buf, CELL, tells_busy(s->job, s->devices) ? "?" : "-");
}

/* A number; 0 is shown as -: the process is in no job, or its pid is of another namespace. */
static void number_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const long long v = (long long)json_get_int(s->job, c->key);
    snprintf(buf, CELL, v ? c->format : "-", v);
}

static void word_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    const char *word = json_get_text(s->job, c->key);
    snprintf(buf, CELL, "%.16s", word ? word : "-");
}

static void time_text(char buf[static CELL], const struct column *c, const struct shown *s)
{
    cell_time(buf, json_get_int(s->job, c->key));
}

static void user_cell(char buf[static CELL], const struct column *c, const struct shown *s)
{
    user_text(buf, (uid_t)json_get_int(s->job, c->key));
}

static bool has_text(const char *cell, const json_t *job)
{
    return strcmp(cell, "-") != 0;
}

static bool is_others(const char *cell, const json_t *job)
{
    return user_is_other(job);
}

int cell_cut(const char *s, size_t width)
{
    size_t n = 0;
    for (size_t w = 0; s[n]; n++) {
        if (((unsigned char)s[n] & 0xc0) != 0x80 && w++ == width)
            break;
    }
    return (int)n;
}

size_t cell_columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void cell_print(const char *s, size_t width, bool right)
{
    const int blanks = (int)(width - min_u64(cell_columns(s), width));
    printf("%*s%.*s%*s", right ? blanks : 0, "", cell_cut(s, width), s, right ? 0 : blanks, "");
}

const struct column ps_columns[COLUMNS] = {
    {"JOB", .right = true, .key = "number", .format = "#%lld", .text = number_text},
    {"PID", .right = true, .key = "pid", .format = "%lld", .text = number_text},
    {"CLASS", .key = "class", .text = word_text},
    {"WEIGHT", .right = true, .key = "weight", .format = "%lld", .text = number_text},
    {"LIMITS", .needed = has_text, .text = limits_text},
    {"BUDGET", .right = true, .needed = has_text, .key = "budget_us", .text = time_text},
    {"STATE", .key = "state", .text = word_text},
    {"GPU", .text = cell_gpus},
    {"LEVEL", .key = "levels", .text = levels_text},
    {"SLICE", .right = true, .key = "timeslice_us", .text = time_text},
    {"BUSY", .right = true, .key = "busy", .text = busy_text},
    {"SPEED", .right = true, .needed = has_text, .text = cell_speed},
    {"MEM", .right = true, .text = cell_memory},
    {"USER", .needed = is_others, .key = "uid", .text = user_cell},
    {"NAME", .key = "name", .text = name_text},
};
