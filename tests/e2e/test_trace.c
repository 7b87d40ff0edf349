/* `cede trace` on the software GPU: what the file says is what the GPU did; the file is whole
 * however the trace ends; and what cannot be written or traced is said. */
#include <fcntl.h>
#include <sys/stat.h>

#include "fixture.h"
#include "perfetto.pb-c.h"

/* ---- a file of a trace ---- */

#define TRACKS 64U
#define NAMES  1100U

struct slice {
    char name[96];
    uint64_t track, from_ns, to_ns, flow;
};

struct read_trace {
    Perfetto__Trace *trace;
    struct {
        uint64_t uuid, parent, values;
        char name[96];
        bool open;
        struct slice last;
    } tracks[TRACKS];
    unsigned ntracks, instants;
    char names[NAMES][96];
    struct slice *slices;
    size_t nslices;
    size_t rest; /* bytes behind the last whole packet */
};

/* Bytes of whole packets in front: each is a field 1 with a length. */
static size_t whole_packets(const uint8_t *v, size_t n)
{
    size_t at = 0;
    for (;;) {
        size_t p = at + 1, size = 0;
        unsigned shift = 0;
        if (at >= n || v[at] != 0x0a)
            return at;
        do {
            if (p >= n || shift > 21)
                return at;
            size |= (size_t)(v[p] & 0x7f) << shift;
            shift += 7;
        } while (v[p++] & 0x80);
        if (size > n - p)
            return at;
        at = p + size;
    }
}

static unsigned track_at(struct read_trace *r, uint64_t uuid)
{
    for (unsigned i = 0; i < r->ntracks; i++) {
        if (r->tracks[i].uuid == uuid)
            return i;
    }
    fail_msg("an event on a track that was not described: %llx", (unsigned long long)uuid);
    return 0;
}

static void add_track(struct read_trace *r, const Perfetto__TrackDescriptor *d)
{
    unsigned i = 0;
    while (i < r->ntracks && r->tracks[i].uuid != d->uuid)
        i++;
    assert_true(i < TRACKS && d->uuid);
    r->ntracks += i == r->ntracks;
    r->tracks[i].uuid = d->uuid;
    r->tracks[i].parent = d->parent_uuid;
    snprintf(r->tracks[i].name, sizeof(r->tracks[i].name), "%s", d->name);
}

static const char *event_name(const struct read_trace *r, const Perfetto__TrackEvent *ev)
{
    if (ev->name_field_case == PERFETTO__TRACK_EVENT__NAME_FIELD_NAME)
        return ev->name;
    assert_true(ev->name_iid && ev->name_iid < NAMES);
    assert_true(r->names[ev->name_iid][0]); /* interned before it is used */
    return r->names[ev->name_iid];
}

static void add_event(struct read_trace *r, const Perfetto__TracePacket *p)
{
    const Perfetto__TrackEvent *ev = p->track_event;
    const unsigned t = track_at(r, ev->track_uuid);
    struct slice *s = &r->tracks[t].last;
    switch (ev->type) {
    case PERFETTO__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN:
        assert_false(r->tracks[t].open);
        r->tracks[t].open = true;
        *s = (struct slice){.track = ev->track_uuid,
                            .from_ns = p->timestamp,
                            .flow = ev->n_flow_ids ? ev->flow_ids[0] : 0};
        snprintf(s->name, sizeof(s->name), "%s", event_name(r, ev));
        break;
    case PERFETTO__TRACK_EVENT__TYPE__TYPE_SLICE_END:
        assert_true(r->tracks[t].open);
        r->tracks[t].open = false;
        assert_true(p->timestamp >= s->from_ns);
        s->to_ns = p->timestamp;
        r->slices = realloc(r->slices, (r->nslices + 1) * sizeof(*r->slices));
        assert_non_null(r->slices);
        r->slices[r->nslices++] = *s;
        break;
    case PERFETTO__TRACK_EVENT__TYPE__TYPE_INSTANT:
        assert_true(strlen(event_name(r, ev)) > 0);
        r->instants++;
        break;
    default:
        assert_int_equal(ev->type, PERFETTO__TRACK_EVENT__TYPE__TYPE_COUNTER);
        r->tracks[t].values++;
    }
}

static void read_trace(struct read_trace *r, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t *v = malloc((size_t)st.st_size + 1);
    assert_non_null(v);
    assert_int_equal(read(fd, v, (size_t)st.st_size), st.st_size);
    close(fd);
    size_t n = whole_packets(v, (size_t)st.st_size);
    *r = (struct read_trace){.rest = (size_t)st.st_size - n};
    r->trace = perfetto__trace__unpack(NULL, n, v);
    free(v);
    assert_non_null(r->trace);
    assert_true(r->trace->n_packet > 0);
    assert_int_equal(r->trace->packet[0]->clock_snapshot->n_clocks, 3);
    assert_int_equal(r->trace->packet[0]->trace_packet_defaults->timestamp_clock_id, 3);
    for (size_t i = 0; i < r->trace->n_packet; i++) {
        const Perfetto__TracePacket *p = r->trace->packet[i];
        for (size_t k = 0; p->interned_data && k < p->interned_data->n_event_names; k++) {
            const Perfetto__EventName *name = p->interned_data->event_names[k];
            assert_true(name->iid < NAMES);
            snprintf(r->names[name->iid], sizeof(r->names[0]), "%s", name->name);
        }
        if (p->data_case == PERFETTO__TRACE_PACKET__DATA_TRACK_DESCRIPTOR)
            add_track(r, p->track_descriptor);
        if (p->data_case == PERFETTO__TRACE_PACKET__DATA_TRACK_EVENT)
            add_event(r, p);
    }
}

static void forget_trace(struct read_trace *r)
{
    perfetto__trace__free_unpacked(r->trace, NULL);
    free(r->slices);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *track_name(struct read_trace *r, uint64_t uuid)
{
    return r->tracks[track_at(r, uuid)].name;
}

/* Of slices whose names begin so, on tracks whose names begin so. */
static uint64_t time_of(struct read_trace *r, const char *track, const char *name, size_t *n)
{
    uint64_t ns = 0;
    size_t found = 0;
    for (size_t i = 0; i < r->nslices; i++) {
        const struct slice *s = &r->slices[i];
        if (!starts(s->name, name) || !starts(track_name(r, s->track), track))
            continue;
        ns += s->to_ns - s->from_ns;
        found++;
    }
    if (n)
        *n = found;
    return ns;
}

static bool has_track(const struct read_trace *r, const char *name)
{
    for (unsigned i = 0; i < r->ntracks; i++) {
        if (starts(r->tracks[i].name, name))
            return true;
    }
    return false;
}

static const char *trace_path(void)
{
    return in_dir("t.pftrace");
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* ---- tests ---- */

static pid_t begin_job(const char *name, const char *class, const char *weight)
{
    pid_t pid = SPAWN(name, "cede", "run", "--strict", "-c", class, "-w", weight, "-n", name, "--",
                      harness_exe(), "load", "batch", "--device", "soft", "--kernel-us", "2000");
    AWAIT(job_is(name, "source", "run") && job_int(name, "processes") == 1);
    return pid;
}

static void end_job(const char *name, pid_t pid)
{
    kill(pid, SIGTERM);
    assert_int_equal(await_child(pid), 0);
    AWAIT(job_gone(name));
}

/* What they had of the GPU during the trace, by the software GPU itself, against the file: a turn
 * more or less at either end. */
E2E(shares_are_those_of_the_gpu)
{
    ceded_start();
    pid_t runners[] = {begin_job("heavy", "batch", "300"), begin_job("light", "batch", "100")};
    pid_t programs[2];
    double busy[2];
    struct read_trace r;
    for (int i = 0; i < 2; i++)
        programs[i] = program_below(runners[i]);
    await_progress(programs, 2);
    pid_t tracer = SPAWN("trace", "cede", "trace", "-o", trace_path());
    AWAIT(size_of(trace_path()) > 0);
    measure(programs, 2, 4000, busy);
    kill(tracer, SIGINT);
    assert_int_equal(await_child(tracer), 0);
    read_trace(&r, trace_path());
    assert_int_equal(r.rest, 0);
    double heavy = (double)time_of(&r, "GPU 0", "heavy", NULL),
           light = (double)time_of(&r, "GPU 0", "light", NULL);
    print_message("file: %.2f s and %.2f s, ratio %.2f; GPU: %.3f and %.3f of it, ratio %.2f\n",
                  heavy / 1e9, light / 1e9, heavy / light, busy[0], busy[1], busy[0] / busy[1]);
    assert_true(heavy / light > 2.2 && heavy / light < 4);
    double relative = heavy / light / (busy[0] / busy[1]);
    assert_true(relative > 0.85 && relative < 1.18);
    /* The trace covers what was measured, and a little more. */
    assert_true(heavy / 1e9 > 0.9 * 4 * busy[0] && light / 1e9 > 0.9 * 4 * busy[1]);
    forget_trace(&r);
    end_job("heavy", runners[0]);
    end_job("light", runners[1]);
}

/* Each request of a latency job takes the GPU from the training, and is a slice of its own. */
E2E(requests_interrupt_the_training)
{
    configure(50, "");
    ceded_start();
    pid_t train = begin_job("train", "batch", "100"), other = begin_job("other", "batch", "100");
    pid_t serve = SPAWN("serve", "cede", "run", "--strict", "-c", "latency", "-n", "serve", "--",
                        harness_exe(), "load", "latency", "--device", "soft", "--period-us",
                        "20000", "--kernel-us", "1000", "--deadline-us", "50000");
    struct read_trace r;
    size_t requests, turns, train_turns, inside = 0;
    AWAIT(job_is("serve", "state", "running"));
    CEDE("trace", "-o", trace_path(), "-t", "3s");
    assert_non_null(strstr(result.out, "ui.perfetto.dev"));
    read_trace(&r, trace_path());
    time_of(&r, "requests", "request", &requests);
    time_of(&r, "GPU 0", "serve", &turns);
    time_of(&r, "GPU 0", "train", &train_turns);
    assert_true(requests > 20 && turns > 20 && train_turns > 20);
    for (size_t i = 0; i < r.nslices; i++) {
        const struct slice *q = &r.slices[i];
        bool found = false;
        for (size_t k = 0; strcmp(q->name, "request") == 0 && k < r.nslices && !found; k++) {
            const struct slice *s = &r.slices[k];
            found = starts(s->name, "serve") && s->from_ns < q->to_ns && s->to_ns > q->from_ns;
        }
        inside += found;
    }
    print_message("%zu requests, %zu of them seen on the GPU, in %zu turns\n", requests, inside,
                  turns);
    assert_true(inside * 10 >= requests * 9); /* those at either end may be cut off */
    /* The others take turns meanwhile: the states say who may run, the decisions why. */
    double waiting = (double)time_of(&r, "state", "waiting", NULL);
    print_message("%.2f s of waiting, %u decisions\n", waiting / 1e9, r.instants);
    assert_true(waiting > 1e9 && r.instants > 20);
    assert_true(has_track(&r, "GPU memory") && has_track(&r, "share of GPU time"));
    forget_trace(&r);
    end_job("serve", serve);
    end_job("train", train);
    end_job("other", other);
}

/* Only what was asked for by name: others are on the GPU's track, without names. */
E2E(chosen_jobs_only)
{
    ceded_start();
    pid_t a = begin_job("wanted", "batch", "100"), b = begin_job("secret", "batch", "100");
    struct read_trace r;
    CEDE("trace", "-o", trace_path(), "-t", "2s", "wanted");
    read_trace(&r, trace_path());
    assert_true(has_track(&r, "wanted (#"));
    assert_false(has_track(&r, "secret"));
    assert_true(time_of(&r, "GPU 0", "wanted", NULL) > 0);
    assert_true(time_of(&r, "GPU 0", "another job", NULL) > 0);
    assert_int_equal(time_of(&r, "", "secret", NULL), 0);
    forget_trace(&r);
    end_job("wanted", a);
    end_job("secret", b);
}

/* Killed at any moment: whole packets, and ceded goes on and can be traced again. */
E2E(killed_tracers)
{
    ceded_start();
    pid_t a = begin_job("a", "batch", "100"), b = begin_job("b", "batch", "100");
    struct rng rng = {7};
    for (int i = 0; i < 3; i++) {
        struct read_trace r;
        unlink(trace_path());
        pid_t tracer = SPAWN("trace", "cede", "trace", "-o", trace_path());
        AWAIT(size_of(trace_path()) > 2000);
        nap_ms((unsigned)rng_below(&rng, 300));
        slay_child(tracer);
        read_trace(&r, trace_path());
        assert_int_equal(r.rest, 0);
        forget_trace(&r);
    }
    CEDE("ps");
    end_job("a", a);
    end_job("b", b);
}

/* The end of ceded is said; what came before is a trace. */
E2E(ceded_ends_first)
{
    struct ceded d = ceded_start();
    pid_t a = begin_job("a", "batch", "100");
    struct read_trace r;
    pid_t tracer = SPAWN("trace", "cede", "trace", "-o", trace_path());
    AWAIT(size_of(trace_path()) > 500);
    ceded_stop(&d);
    assert_int_equal(await_child(tracer), 1);
    assert_non_null(strstr(contents("trace.err"), "ceded has ended"));
    read_trace(&r, trace_path());
    assert_int_equal(r.rest, 0);
    assert_true(has_track(&r, "a (#1)"));
    forget_trace(&r);
    kill(a, SIGTERM);
    await_child(a);
}

E2E(errors_say_what_is_wrong)
{
    FAILS(1, "no daemon is running", "trace", "-o", trace_path(), "-t", "1s");
    assert_int_equal(access(trace_path(), F_OK), -1);
    FAILS(2, "no file given", "trace");
    FAILS(2, "requires an argument", "trace", "-o");
    FAILS(2, "no time", "trace", "-o", "x", "-t", "soon");
    FAILS(2, "no time", "trace", "-o", "x", "-t", "0");
    FAILS(2, "no time", "trace", "-o", "x", "-t", "90000s");
    ceded_start();
    pid_t a = begin_job("a", "batch", "100");
    FAILS(1, "nobody: no such job", "trace", "-o", trace_path(), "-t", "1s", "nobody");
    assert_int_equal(access(trace_path(), F_OK), -1);
    FAILS(1, "cannot write /no/such/dir/t", "trace", "-o", "/no/such/dir/t", "-t", "1s");
    FAILS(1, "cannot write /dev/full: No space left", "trace", "-o", "/dev/full", "-t", "5s");
    assert_non_null(strstr(result.err, "whole trace"));
    /* With the umask of whoever asks. */
    mode_t old = umask(077);
    CEDE("trace", "-o", trace_path(), "-t", "100ms");
    umask(old);
    struct stat st;
    assert_int_equal(stat(trace_path(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    end_job("a", a);
}

/* By another program, which was not written here. */
E2E(protoc_reads_it)
{
    char command[600];
    if (!getenv("CEDE_PROTO_DIR") || system("protoc --version >/dev/null 2>&1") != 0)
        skip();
    ceded_start();
    pid_t a = begin_job("a", "batch", "100");
    CEDE("trace", "-o", trace_path(), "-t", "500ms");
    snprintf(command, sizeof(command),
             "protoc --proto_path='%s' --decode=perfetto.Trace perfetto.proto <'%s' >'%s.txt' && "
             "grep -q 'name: \"a (#1)\"' '%s.txt' && ! grep -q '^ *[0-9][0-9]*[:{ ]' '%s.txt'",
             getenv("CEDE_PROTO_DIR"), trace_path(), trace_path(), trace_path(), trace_path());
    assert_int_equal(system(command), 0); /* no field is without a name */
    end_job("a", a);
}

int main(void)
{
    return test_run(harness_begin, harness_end);
}
