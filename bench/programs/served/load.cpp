/* Runs the servers of server.cpp under loads, and prints one line of JSON for each run.
 *
 *     server SECONDS MODE:LOAD...        e.g. server 6 plain:0.8 cede:0.8
 *
 * Load 1 is what the GPU can do in full batches, a quarter of it for `small`. Arrivals are random
 * and the same in all modes. Bulk work comes on top. */
#include "load.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <stdexcept>

const model models[MODELS] = {
    {"small", 10ms, 8, 0.25, 2ms, cede::job_class::latency, 0.25},
    {"large", 100ms, 8, 0.75, 15ms, cede::job_class::normal, 1},
};

static microseconds measured(work_kind kind, unsigned n, void *stream)
{
    std::vector<microseconds> times;
    for (int i = 0; i < 12; i++) {
        auto before = std::chrono::steady_clock::now();
        work_run(kind, n, stream);
        times.push_back(
            std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - before));
    }
    std::sort(times.begin() + 3, times.end()); /* the first ones are for warming up */
    return times[7];
}

static void measure(run &r)
{
    void *stream = work_stream(0);
    for (unsigned k = 0; k < WORK_KINDS; k++) {
        work_kind kind = static_cast<work_kind>(k);
        unsigned most = kind == WORK_BULK ? 1 : models[k].batch_max;
        for (unsigned n = 2; n < most; n++)
            work_run(kind, n, stream); /* loads its kernels */
        r.one[k] = measured(kind, 1, stream);
        r.full[k] = measured(kind, most, stream);
    }
}

static double ms(microseconds t)
{
    return static_cast<double>(t.count()) / 1000;
}

/* A request without an answer is late: when a run ends, all deadlines have passed. */
static void report_model(const run &r, unsigned m)
{
    std::vector<microseconds> took;
    unsigned refused = 0, answered = 0, unanswered = 0;
    for (const request &q : r.requests[m]) {
        bool ended = q.answered.count() > 0;
        microseconds t = (ended ? q.answered : r.length) - q.arrival;
        refused += q.refused;
        unanswered += !ended && !q.refused;
        answered += ended && t <= models[m].deadline;
        if (!q.refused)
            took.push_back(t);
    }
    std::sort(took.begin(), took.end());
    size_t n = took.size();
    const cede_queue_statistics &s = r.queues[m];
    std::printf(", \"%s\": {\"sent\": %zu, \"answered\": %u, \"late\": %zu, \"refused\": %u, "
                "\"unanswered\": %u, \"batches\": %u, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
                "\"alone\": %llu, \"behind\": %llu, \"others\": %llu}",
                models[m].name, r.requests[m].size(), answered, n - answered, refused, unanswered,
                r.batches[m].load(), n ? ms(took[n / 2]) : 0, n ? ms(took[n * 99 / 100]) : 0,
                static_cast<unsigned long long>(s.alone), static_cast<unsigned long long>(s.behind),
                static_cast<unsigned long long>(s.others));
}

static void serve(run &r, double seconds)
{
    for (unsigned m = 0; m < MODELS; m++) {
        std::mt19937_64 random(m + 1);
        std::exponential_distribution<> gap(r.load * models[m].share * models[m].batch_max /
                                            static_cast<double>(r.full[m].count()));
        for (double t = gap(random); t < seconds * 1e6; t += gap(random))
            r.requests[m].push_back({microseconds(static_cast<long>(t)), 0us, false});
    }
    r.length = microseconds(static_cast<long>(seconds * 1e6)) + models[WORK_LARGE].deadline;
    r.start = std::chrono::steady_clock::now() + 500ms; /* until then threads warm up */
    if (r.mode == "cede")
        serve_cede(r);
    else if (r.mode == "plain" || r.mode == "priority")
        serve_plain(r);
    else
        throw std::runtime_error("no such mode: " + r.mode);
    std::printf(
        "{\"mode\": \"%s\", \"load\": %g, \"seconds\": %g, \"bulk\": %u, \"displaced\": %llu, "
        "\"timed_out\": %llu",
        r.mode.c_str(), r.load, seconds, r.bulk.load(),
        static_cast<unsigned long long>(r.pool.displaced),
        static_cast<unsigned long long>(r.pool.timed_out));
    for (unsigned m = 0; m < MODELS; m++)
        report_model(r, m);
    std::printf("}\n");
    std::fflush(stdout);
}

int main(int argc, char **argv)
try {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s SECONDS plain|priority|cede:LOAD...\n", argv[0]);
        return 2;
    }
    work_open();
    run times;
    measure(times);
    std::printf("{\"small_ms\": [%g, %g], \"large_ms\": [%g, %g], \"bulk_ms\": %g}\n",
                ms(times.one[WORK_SMALL]), ms(times.full[WORK_SMALL]), ms(times.one[WORK_LARGE]),
                ms(times.full[WORK_LARGE]), ms(times.full[WORK_BULK]));
    for (int i = 2; i < argc; i++) {
        std::string mode = argv[i];
        size_t colon = mode.find(':');
        if (colon == std::string::npos)
            throw std::runtime_error(mode + " is not MODE:LOAD");
        run r;
        r.mode = mode.substr(0, colon);
        r.load = std::stod(mode.substr(colon + 1));
        std::copy(times.one, times.one + WORK_KINDS, r.one);
        std::copy(times.full, times.full + WORK_KINDS, r.full);
        serve(r, std::stod(argv[1]));
    }
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
