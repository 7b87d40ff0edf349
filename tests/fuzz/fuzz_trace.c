/* Fuzz target for events of ceded: whatever comes in whatever order, the file is a trace in which
 * every slice that begins ends, on a track that was described before. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/trace_tracks.h"
#include "fuzz.h"
#include "perfetto.pb-c.h"

#define TRACKS 4096U

static void check_trace(const uint8_t *v, size_t n)
{
    static struct {
        uint64_t uuid;
        int open;
    } tracks[TRACKS];
    uint32_t ntracks = 0;
    Perfetto__Trace *t = perfetto__trace__unpack(NULL, n, v);
    require(t != NULL);
    for (size_t i = 0; i < t->n_packet; i++) {
        const Perfetto__TracePacket *p = t->packet[i];
        bool event = p->data_case == PERFETTO__TRACE_PACKET__DATA_TRACK_EVENT;
        bool track = p->data_case == PERFETTO__TRACE_PACKET__DATA_TRACK_DESCRIPTOR;
        uint64_t uuid = event ? p->track_event->track_uuid : track ? p->track_descriptor->uuid : 0;
        uint32_t k = 0;
        while (k < ntracks && tracks[k].uuid != uuid)
            k++;
        if (track && k == ntracks) {
            require(ntracks < TRACKS);
            tracks[ntracks].uuid = uuid;
            tracks[ntracks++].open = 0;
        }
        require(!event || k < ntracks);
        if (event)
            tracks[k].open += (p->track_event->type == 1) - (p->track_event->type == 2);
        require(!event || tracks[k].open == 0 || tracks[k].open == 1);
    }
    for (uint32_t k = 0; k < ntracks; k++)
        require(tracks[k].open == 0);
    perfetto__trace__free_unpacked(t, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct perfetto *p = NULL;
    int fd = memfd_create("trace", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    require(fd >= 0 && perfetto_open(path, &p, NULL) == 0);
    struct tracks *t = tracks_new(p, NULL);
    require(t != NULL);
    for (; size >= 8; data += 8, size -= 8) {
        struct trace_event ev = {.kind = data[0] % 16U,
                                 .gpu = data[1] % 20U,
                                 .job = (uint64_t)(data[2] % 4U) * 4096 + data[2] % 3U,
                                 .at_ns = data[3] * 256U + data[4],
                                 .v = {data[5] % 9U, data[6], data[7]}};
        memset(ev.text, data[5], data[6] % (sizeof(ev.text) + 1));
        tracks_take(t, &ev);
    }
    tracks_end(t, 0);
    require(perfetto_flush(p, NULL) == 0);
    struct stat st;
    require(fstat(fd, &st) == 0);
    uint8_t *v = malloc((size_t)st.st_size + 1);
    require(v && pread(fd, v, (size_t)st.st_size, 0) == st.st_size);
    check_trace(v, (size_t)st.st_size);
    free(v);
    tracks_free(t);
    perfetto_close(p);
    close(fd);
    return 0;
}
