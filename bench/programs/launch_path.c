/* Counts the instructions of one kernel launch, by single-stepping a process through
 * cuLaunchKernel: what a scheduler adds to the launch path shows here to the instruction, without
 * any clock.
 *
 *   launch_path LAUNCHES           prints {"pid":..} when ready, waits for a line on stdin, then
 *                                  prints {"libraries":[..], "instructions":[min, median, max]}
 *
 * The parent traces its child; the child marks each launch with int3. The libraries are those
 * mapped executable, so that an injected one would show as well. Needs libcuda; x86-64. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
int main(void)
{
    fprintf(stderr, "launch_path: x86-64 only\n");
    return 77;
}
#else

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry nothing() { ret; }\n";

static void *libcuda;

static int call(const char *name, void *a, void *b, void *c)
{
    int (*f)(void *, void *, void *);
    *(void **)&f = dlsym(libcuda, name);
    int r = f ? f(a, b, c) : -1;
    if (r) {
        fprintf(stderr, "launch_path: %s: %d\n", name, r);
        exit(1);
    }
    return r;
}

static void child(int launches)
{
    void *context, *module, *function;
    call("cuInit", NULL, NULL, NULL);
    call("cuCtxCreate_v2", &context, NULL, NULL);
    call("cuModuleLoadData", &module, (void *)(uintptr_t)ptx, NULL);
    call("cuModuleGetFunction", &function, module, (void *)(uintptr_t) "nothing");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    *(void **)&launch = dlsym(libcuda, "cuLaunchKernel");
    for (int i = 0; i < 100; i++)
        launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    call("cuCtxSynchronize", NULL, NULL, NULL);
    printf("{\"pid\":%d}\n", (int)getpid());
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof(line), stdin))
        exit(1);
    for (int i = 0; i < launches; i++) {
        __asm__ volatile("int3");
        launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        __asm__ volatile("int3");
        call("cuCtxSynchronize", NULL, NULL, NULL);
    }
    _exit(0);
}

/* The libraries that are mapped executable, as JSON strings, in address order without repeats. */
static void print_libraries(pid_t pid)
{
    char path[64], line[4096], last[4096] = "";
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *name = strrchr(line, '/');
        if (!name || !strstr(line, " r-xp ") || !strstr(name, ".so"))
            continue;
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, last) != 0)
            printf("%s\"%s\"", last[0] ? "," : "", name + 1);
        snprintf(last, sizeof(last), "%s", name);
    }
    if (f)
        fclose(f);
}

static int compare(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 50, status, n = 0;
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libcuda || launches < 1 || launches > 10000) {
        fprintf(stderr, "launch_path: %s\n", libcuda ? "usage: launch_path LAUNCHES" : dlerror());
        return libcuda ? 2 : 77;
    }
    long *count = calloc((size_t)launches, sizeof(*count));
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        child(launches);
    }
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) != SIGTRAP) {
            ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)WSTOPSIG(status));
            continue;
        }
        if (n == launches)
            break;
        /* At the first mark: step to the second one, which is the same byte (0xcc). */
        long steps = 0;
        if (n == 0) {
            printf("{\"libraries\":[");
            print_libraries(pid);
            printf("]");
        }
        do {
            if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) < 0)
                break;
            steps++;
        } while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) &&
                 WSTOPSIG(status) == SIGTRAP && ({
                     siginfo_t si;
                     ptrace(PTRACE_GETSIGINFO, pid, NULL, &si);
                     si.si_code != SI_KERNEL; /* int3 */
                 }));
        count[n++] = steps;
        ptrace(PTRACE_CONT, pid, NULL, NULL);
    }
    qsort(count, (size_t)n, sizeof(*count), compare);
    if (n < launches || !WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "launch_path: the traced program did not finish\n");
        return 1;
    }
    printf(",\"instructions\":[%ld,%ld,%ld]}\n", count[0], count[n / 2], count[n - 1]);
    free(count);
    return 0;
}
#endif
