/* A program that reports its requests to cede; see cede(3).
 *
 *     cc requests.c $(pkg-config --cflags --libs cede) -o requests
 *     cede run -c latency -- ./requests 5000     in another terminal: cede ps --json */
#include <cede/cede.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 100;
    struct cede *c;
    struct cede_statistics s;
    if (cede_connect(&c) < 0) { /* succeeds without a daemon too */
        fprintf(stderr, "%s\n", cede_error_text());
        return 1;
    }
    cede_set_deadline(c, CEDE_JOB, 20000); /* each request is due 20 ms after it began */
    for (int i = 0; i < n; i++) {
        struct cede_request request;
        cede_request_begin(c, &request, CEDE_JOB, 2000, 0);
        usleep(2000); /* in place of work on the GPU */
        cede_request_end(c, &request);
    }
    cede_get_statistics(c, &s, sizeof(s));
    printf("%llu requests, p50 %llu us, p99 %llu us, %llu of %llu in time\n",
           (unsigned long long)s.ended, (unsigned long long)s.p50_us, (unsigned long long)s.p99_us,
           (unsigned long long)s.deadlines_met, (unsigned long long)s.with_deadline);
    cede_close(c);
    return 0;
}
