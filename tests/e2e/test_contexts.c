/* Programs with contexts by the hundred: there is more to set than there is time for, and whoever
 * asks is answered all the same. With sanitizers it takes minutes; what it calls is sanitized in
 * engine_crowd. */
#include <sys/prctl.h>
#include <sys/resource.h>

#include "fixture.h"
#include "gpu/soft/client.h"

/* A program with so many contexts on the GPU; it ends with the test. */
static pid_t open_contexts(unsigned n)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct soft_client *c;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        while (n && soft_client_open(NULL, 0, NULL, &c) == 0)
            n--;
        if (n || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* Programs with contexts by the hundred, whose turns change all the time: there is more to set than
 * there is time for. Who asks is answered all the same: within 5 s, or the verb fails. */
E2E(contexts_by_the_hundred)
{
    enum { PROGRAMS = 4, CONTEXTS = 400 };
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
    if (l.rlim_max < PROGRAMS * CONTEXTS + 100) {
        print_message("skipped: descriptors for %u contexts are needed\n", PROGRAMS * CONTEXTS);
        skip();
    }
    const struct rlimit before = l;
    l.rlim_cur = l.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
    configure(20, "");
    struct ceded d = ceded_start();
    pid_t pids[PROGRAMS], lat = LOAD("lat", "latency", "--period-us", "20000");
    CEDE("set", pid_text(lat), "-c", "latency");
    for (int i = 0; i < PROGRAMS; i++)
        pids[i] = open_contexts(CONTEXTS);
    for (int i = 0; i < PROGRAMS; i++)
        CEDE("set", pid_text(pids[i]), "-c", "batch");
    for (int i = 0; i < 30; i++) {
        CEDE("set", pid_text(pids[i % PROGRAMS]), "-w", i & 1 ? "100" : "50");
        CEDE("ps");
    }
    assert_null(strstr(contents("ceded.err"), "does not answer"));
    for (int i = 0; i < PROGRAMS; i++)
        slay_child(pids[i]);
    json_decref(load_end("lat", lat));
    ceded_stop(&d);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}
