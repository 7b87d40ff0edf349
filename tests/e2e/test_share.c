/* What two latency jobs leave each other, as admission sees it: a queue in one of them refuses what
 * it cannot meet while the other works, and accepts it before and after. */
#include <fcntl.h>

#include "cede/queue.h"
#include "fixture.h"

/* The job: this process, and a load that has a tenth of the GPU. Writes ten times per second the
 * share, and the answer to a request of 10 ms that is due in 15. */
static void serve(void)
{
    int out = open(in_dir("server.out"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    SPAWN("small", "cede", "load", "latency", "--device", "soft", "--name", "small", "--kernel-us",
          "1000", "--period-us", "10000");
    struct cede_queue_config config;
    struct cede_queue *q;
    cede_handle *c;
    cede_queue_defaults(&config);
    if (cede_connect(&c))
        _exit(1);
    config.admit = 1;
    config.expected_us = 10000;
    config.client = c;
    const struct cede_queue_request last_of_all = {.cls = CEDE_BATCH}; /* the queue is not idle */
    if (cede_queue_open(&config, &q) || cede_queue_submit(q, &last_of_all, NULL))
        _exit(1);
    for (;; nap_ms(100)) {
        const struct cede_queue_request r = {.cls = CEDE_LATENCY, .deadline_us = 15000};
        struct cede_queue_ticket t;
        double share = cede_share(c);
        cede_queue_submit(q, &r, &t);
        if (t.id)
            cede_queue_cancel(q, t.id);
        if (dprintf(out, "%f %d\n", share, (int)t.answer) < 0)
            _exit(1);
    }
}

/* The last whole line. */
static bool last(double *share, int *answer)
{
    char *text = strdup(contents("server.out")), *end = text ? strrchr(text, '\n') : NULL;
    bool is = false;
    if (end) {
        *end = '\0';
        char *line = strrchr(text, '\n');
        is = sscanf(line ? line + 1 : text, "%lf %d", share, answer) == 2;
    }
    free(text);
    return is;
}

E2E(two_latency_jobs)
{
    double share = 0;
    int answer = -1;
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t server = in_a_child(serve);
    AWAIT(last(&share, &answer) && answer == CEDE_QUEUE_RUNS);
    CEDE("set", pid_text(server), "-c", "latency");
    pid_t other = LOAD("other", "latency", "--kernel-us", "4000", "--period-us", "5000");
    CEDE("set", pid_text(other), "-c", "latency");
    AWAIT(last(&share, &answer) && answer == CEDE_QUEUE_ALONE);
    printf("beside another latency job: %.3f\n", share);
    assert_true(share < 0.667);
    AWAIT(last(&share, &answer) && share >= 0.48); /* at least its half */
    json_decref(load_end("other", other));
    AWAIT(last(&share, &answer) && answer == CEDE_QUEUE_RUNS && share > 0.95);
    ceded_kill(&d); /* what it said last grows old */
    AWAIT(last(&share, &answer) && share == 1);
    pid_t small[8];
    for (size_t n = children_of(server, small, 8); n; n--)
        kill(small[n - 1], SIGKILL);
    slay_child(server);
}
