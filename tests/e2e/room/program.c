/* A program that needs more of a GPU's memory while it runs: says its pid, "asked" when the daemon
 * has taken its request, and "granted", or why not, when its wait is over; then does nothing until
 * it is killed. usage: program BYTES SECONDS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cede/memory.h"

static struct cede_memory *memory;

static void *report(void *arg)
{
    struct cede_memory_statistics s = {0};
    char last[sizeof(s.error)] = "";
    for (;;) {
        usleep(2000);
        if (cede_memory_get_statistics(memory, &s, sizeof(s)) < 0)
            return NULL;
        if (s.error[0] && strcmp(s.error, last) != 0)
            printf("%s\n", s.error);
        memcpy(last, s.error, sizeof(last));
        if (s.daemon_asked) {
            printf("asked\n");
            return NULL;
        }
    }
}

int main(int argc, char **argv)
{
    struct cede_memory_config c;
    pthread_t t;
    uint64_t address;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("pid %d\n", (int)getpid());
    cede_memory_defaults(&c);
    int r = argc == 3 ? cede_connect(&c.client) : -1;
    r = r ? r : cede_memory_open(&c, &memory);
    r = r ? r : pthread_create(&t, NULL, report, NULL);
    if (r) {
        printf("failed: %d\n", r);
        return 1;
    }
    r = cede_memory_allocate(memory, NULL, strtoull(argv[1], NULL, 10), atol(argv[2]) * 1000000L,
                             &address);
    printf(r ? "refused: %d\n" : "granted\n", r);
    pause();
    return 0;
}
