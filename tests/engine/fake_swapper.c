/* The swapper of tests of swapping, which is the test's program again, and their main(). */
#include "swapping.h"

/* Says in the directory $SWAP_TEST what it was ordered, and waits for the answer. */
static int fake_swapper(void)
{
    static struct swap_order o;
    struct swap_result res = {.err = {"because the test says so"}};
    char path[128], text[64];
    const char *dir = getenv("SWAP_TEST");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!dir || read_full(SWAP_ORDER_FD, &o, sizeof(o)) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/order", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int len = snprintf(text, sizeof(text), "%s %d %llu", o.out ? "out" : "in",
                       o.n == 1 ? (int)o.v[0].proc.pid : -1, (unsigned long long)o.v[0].bytes[0]);
    if (fd < 0 || write_full(fd, text, (size_t)len) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/answer", dir);
    while ((fd = open(path, O_RDONLY)) < 0) {
        if (access(dir, F_OK) < 0) /* the test was over before the signal above was set */
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    memset(text, 0, sizeof(text));
    if (read(fd, text, sizeof(text) - 1) <= 0 || unlink(path) < 0)
        return 1;
    res.code = -atoi(text);
    res.locked_ns = strchr(text, '+') ? strtoull(strchr(text, '+'), NULL, 10) : 0;
    return write_full(SWAP_RESULT_FD, &res, sizeof(res)) < 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    return strcmp(argv[0], "cede-swap") == 0 ? fake_swapper() : test_run(NULL, NULL);
}
