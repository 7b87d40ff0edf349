/* What both ways to serve have in common: the models, the requests of a run, and what became of
 * them. load.cpp makes the runs, and prints them. */
#ifndef SERVED_LOAD_H
#define SERVED_LOAD_H

#include <atomic>
#include <cede/cede.hpp>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "work.h"

using namespace std::chrono_literals;
using std::chrono::microseconds;

struct model {
    const char *name;
    microseconds deadline;
    unsigned batch_max;
    double share; /* of the requests' load */
    /* For cede: */
    microseconds batch_wait;
    cede::job_class cls;
    double occupancy; /* of the GPU, a batch */
};
static const unsigned MODELS = 2;
extern const model models[MODELS];

struct request {
    microseconds arrival, answered{0}; /* from the start of the run; 0: not */
    bool refused = false;
};

struct run {
    std::string mode;
    double load;
    microseconds length;
    std::chrono::steady_clock::time_point start;
    std::vector<request> requests[MODELS];
    microseconds one[WORK_KINDS], full[WORK_KINDS]; /* run times alone */
    std::atomic<bool> over{false};
    std::atomic<unsigned> bulk{0}, batches[MODELS] = {};
    cede_queue_statistics queues[MODELS] = {}; /* cede */
    cede_pool_statistics pool = {};

    microseconds now() const
    {
        return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - start);
    }
    /* Calls submit(request) at each one's arrival, however slow the server is. */
    template <class F> void arrive(unsigned m, F submit)
    {
        for (request &q : requests[m]) {
            std::this_thread::sleep_until(start + q.arrival);
            if (over)
                return;
            submit(q);
        }
    }
    /* Runs a batch. Not part of the server proper: what a user's server would compute. */
    template <class B> void answer(unsigned m, const B &batch, void *stream)
    {
        work_run(static_cast<work_kind>(m), static_cast<unsigned>(batch.size()), stream);
        for (request *q : batch)
            q->answered = now();
        batches[m]++;
    }
};

void serve_plain(run &r);
void serve_cede(run &r);

#endif
