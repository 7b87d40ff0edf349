/* See writer.h. */
#include "cli/perfetto/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/out_file.h"
#include "perfetto.pb-c.h"

#define BUFFER     16384U
#define PACKET_MAX 4096U
#define NAMES      1024U /* slots for interned names; other names are written out each time */
#define NAME_MAX_  96U
#define SEQUENCE   1U
#define FLAG_FRESH 1U
#define FLAG_NEEDS 2U
#define CLOCK_REAL 1U
#define CLOCK_MONO 3U
#define CLOCK_BOOT 6U

struct perfetto {
    int code;
    struct out_file file;
    uint64_t written; /* bytes of whole packets in the file */
    size_t used;
    uint8_t buffer[BUFFER];
    char names[NAMES][NAME_MAX_]; /* hash table, open addressing; "": free */
    uint32_t nnames;
};

typedef Perfetto__TracePacket packet_t;

/* Writes a packet as a separate Trace. One above PACKET_MAX is dropped: callers cut their texts. */
static void write_packet(struct perfetto *p, packet_t *packet)
{
    Perfetto__Trace trace = PERFETTO__TRACE__INIT;
    packet->has_trusted_packet_sequence_id = packet->has_sequence_flags = 1;
    packet->trusted_packet_sequence_id = SEQUENCE;
    packet->sequence_flags = packet->sequence_flags ? packet->sequence_flags : FLAG_NEEDS;
    trace.n_packet = 1;
    trace.packet = &packet;
    size_t size = perfetto__trace__get_packed_size(&trace);
    if (p->code < 0 || size > PACKET_MAX)
        return;
    if (p->used + size > BUFFER && perfetto_flush(p, NULL) < 0)
        return;
    p->used += perfetto__trace__pack(&trace, p->buffer + p->used);
}

static void write_clocks(struct perfetto *p)
{
    static const struct {
        uint32_t id;
        clockid_t clock;
    } ids[] = {
        {CLOCK_REAL, CLOCK_REALTIME}, {CLOCK_MONO, CLOCK_MONOTONIC}, {CLOCK_BOOT, CLOCK_BOOTTIME}};
    Perfetto__ClockSnapshot__Clock clocks[ARRAY_SIZE(ids)], *list[ARRAY_SIZE(ids)];
    Perfetto__ClockSnapshot snapshot = PERFETTO__CLOCK_SNAPSHOT__INIT;
    Perfetto__TracePacketDefaults defaults = PERFETTO__TRACE_PACKET_DEFAULTS__INIT;
    packet_t packet = PERFETTO__TRACE_PACKET__INIT;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        perfetto__clock_snapshot__clock__init(&clocks[i]);
        clocks[i].has_clock_id = clocks[i].has_timestamp = 1;
        clocks[i].clock_id = ids[i].id;
        clocks[i].timestamp = read_clock_ns(ids[i].clock);
        list[i] = &clocks[i];
    }
    snapshot.n_clocks = ARRAY_SIZE(ids);
    snapshot.clocks = list;
    snapshot.has_primary_trace_clock = 1;
    snapshot.primary_trace_clock = CLOCK_MONO;
    defaults.has_timestamp_clock_id = 1;
    defaults.timestamp_clock_id = CLOCK_MONO;
    packet.trace_packet_defaults = &defaults;
    packet.sequence_flags = FLAG_FRESH;
    packet.has_first_packet_on_sequence = packet.first_packet_on_sequence = 1;
    packet.data_case = PERFETTO__TRACE_PACKET__DATA_CLOCK_SNAPSHOT;
    packet.clock_snapshot = &snapshot;
    write_packet(p, &packet);
}

int perfetto_open(const char *path, struct perfetto **out, struct error *err)
{
    struct perfetto *p = calloc(1, sizeof(*p));
    int r = p ? out_file_open(&p->file, path, 0, err) : error_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = out_file_show(&p->file, err);
    if (r < 0) {
        free(p);
        return r;
    }
    write_clocks(p);
    *out = p;
    return 0;
}

void perfetto_close(struct perfetto *p)
{
    if (!p)
        return;
    out_file_drop(&p->file);
    free(p);
}

int perfetto_flush(struct perfetto *p, struct error *err)
{
    if (p->code == 0 && p->used)
        p->code = write_full(p->file.fd, p->buffer, p->used);
    if (p->code == 0)
        p->written += p->used;
    else if (p->used && ftruncate(p->file.fd, (off_t)p->written) < 0)
        p->used = 0; /* a pipe or device cannot be cut, so a part of a packet may stay there */
    p->used = 0;
    return p->code < 0
               ? error_set(err, p->code, "cannot write %s: %s", p->file.path, strerror(-p->code))
               : 0;
}

/* ---- packets ---- */

void perfetto_track(struct perfetto *p, uint64_t uuid, uint64_t parent, const char *name,
                    const char *unit)
{
    Perfetto__TrackDescriptor track = PERFETTO__TRACK_DESCRIPTOR__INIT;
    Perfetto__CounterDescriptor counter = PERFETTO__COUNTER_DESCRIPTOR__INIT;
    packet_t packet = PERFETTO__TRACE_PACKET__INIT;
    track.has_uuid = 1;
    track.uuid = uuid;
    track.has_parent_uuid = parent != 0;
    track.parent_uuid = parent;
    track.name = (char *)(uintptr_t)name;
    if (unit) {
        bool bytes = strcmp(unit, "bytes") == 0;
        counter.has_unit = bytes;
        counter.unit = PERFETTO__COUNTER_DESCRIPTOR__UNIT__UNIT_SIZE_BYTES;
        counter.unit_name = bytes ? NULL : (char *)(uintptr_t)unit;
        track.counter = &counter;
    }
    packet.data_case = PERFETTO__TRACE_PACKET__DATA_TRACK_DESCRIPTOR;
    packet.track_descriptor = &track;
    write_packet(p, &packet);
}

static void write_event(struct perfetto *p, Perfetto__TrackEvent *ev, uint64_t at_ns,
                        Perfetto__InternedData *interned)
{
    packet_t packet = PERFETTO__TRACE_PACKET__INIT;
    packet.has_timestamp = 1;
    packet.timestamp = at_ns;
    packet.interned_data = interned;
    packet.data_case = PERFETTO__TRACE_PACKET__DATA_TRACK_EVENT;
    packet.track_event = ev;
    write_packet(p, &packet);
}

/* The number of an interned name; 0: the name is not interned. fresh: it is new. */
static uint64_t name_iid(struct perfetto *p, const char *name, bool *fresh)
{
    uint32_t hash = 2166136261U;
    *fresh = false;
    if (!name[0] || strlen(name) >= NAME_MAX_)
        return 0;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619U;
    for (uint32_t i = 0; i < NAMES; i++) {
        uint32_t at = (hash + i) % NAMES;
        if (strcmp(p->names[at], name) == 0)
            return at + 1;
        if (p->names[at][0])
            continue;
        if (p->nnames >= NAMES / 4 * 3)
            return 0;
        p->nnames++;
        *fresh = true;
        snprintf(p->names[at], NAME_MAX_, "%s", name);
        return at + 1;
    }
    return 0;
}

static void write_named(struct perfetto *p, const struct perfetto_event *in,
                        Perfetto__TrackEvent__Type type)
{
    Perfetto__TrackEvent ev = PERFETTO__TRACK_EVENT__INIT;
    Perfetto__DebugAnnotation args[PERFETTO_ARGS_MAX], *list[PERFETTO_ARGS_MAX];
    Perfetto__EventName name = PERFETTO__EVENT_NAME__INIT, *names = &name;
    Perfetto__InternedData interned = PERFETTO__INTERNED_DATA__INIT;
    uint64_t flow = in->flow;
    bool fresh;
    ev.has_type = ev.has_track_uuid = 1;
    ev.type = type;
    ev.track_uuid = in->track;
    ev.name_iid = name_iid(p, in->name, &fresh);
    ev.name_field_case = PERFETTO__TRACK_EVENT__NAME_FIELD_NAME_IID;
    if (!ev.name_iid) {
        ev.name_field_case = PERFETTO__TRACK_EVENT__NAME_FIELD_NAME;
        ev.name = (char *)(uintptr_t)in->name;
    } else if (fresh) {
        name.has_iid = 1;
        name.iid = ev.name_iid;
        name.name = (char *)(uintptr_t)in->name;
        interned.n_event_names = 1;
        interned.event_names = &names;
    }
    ev.n_flow_ids = flow != 0;
    ev.flow_ids = &flow;
    ev.debug_annotations = list;
    for (size_t i = 0; i < in->nargs && i < PERFETTO_ARGS_MAX; i++) {
        Perfetto__DebugAnnotation *a = list[i] = &args[i];
        perfetto__debug_annotation__init(a);
        a->name_field_case = PERFETTO__DEBUG_ANNOTATION__NAME_FIELD_NAME;
        a->name = (char *)(uintptr_t)in->args[i].name;
        a->value_case = in->args[i].text ? PERFETTO__DEBUG_ANNOTATION__VALUE_STRING_VALUE
                                         : PERFETTO__DEBUG_ANNOTATION__VALUE_UINT_VALUE;
        if (in->args[i].text)
            a->string_value = (char *)(uintptr_t)in->args[i].text;
        else
            a->uint_value = in->args[i].number;
        ev.n_debug_annotations++;
    }
    write_event(p, &ev, in->at_ns, fresh ? &interned : NULL);
}

void perfetto_begin(struct perfetto *p, const struct perfetto_event *ev)
{
    write_named(p, ev, PERFETTO__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN);
}

void perfetto_instant(struct perfetto *p, const struct perfetto_event *ev)
{
    write_named(p, ev, PERFETTO__TRACK_EVENT__TYPE__TYPE_INSTANT);
}

void perfetto_end(struct perfetto *p, uint64_t track, uint64_t at_ns)
{
    Perfetto__TrackEvent ev = PERFETTO__TRACK_EVENT__INIT;
    ev.has_type = ev.has_track_uuid = 1;
    ev.type = PERFETTO__TRACK_EVENT__TYPE__TYPE_SLICE_END;
    ev.track_uuid = track;
    write_event(p, &ev, at_ns, NULL);
}

void perfetto_value(struct perfetto *p, uint64_t track, uint64_t at_ns, double value)
{
    Perfetto__TrackEvent ev = PERFETTO__TRACK_EVENT__INIT;
    ev.has_type = ev.has_track_uuid = 1;
    ev.type = PERFETTO__TRACK_EVENT__TYPE__TYPE_COUNTER;
    ev.track_uuid = track;
    ev.counter_value_field_case = PERFETTO__TRACK_EVENT__COUNTER_VALUE_FIELD_DOUBLE_COUNTER_VALUE;
    ev.double_counter_value = value;
    write_event(p, &ev, at_ns, NULL);
}
