/* See last_output.h. */
#include "cli/last_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

#define READER_FD  3
#define READS_LAST 64 /* a pipe holds 64 KiB; what still writes after that is not waited for */

/* Reads up to the end of the ring. */
static bool read_some(int fd, struct last_output_kept *kept)
{
    const size_t at = kept->n % LAST_OUTPUT_BYTES;
    ssize_t n;
    do
        n = read(fd, kept->ring + at, LAST_OUTPUT_BYTES - at);
    while (n < 0 && errno == EINTR);
    kept->n += n > 0 ? (uint64_t)n : 0;
    return n > 0;
}

static int reader_main(void *arg)
{
    while (read_some(READER_FD, arg))
        ;
    return 0;
}

int last_output_open(struct last_output *o, struct error *err)
{
    int fds[2];
    struct last_output_kept *kept =
        mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (kept == MAP_FAILED)
        return error_set(err, -errno, "no memory for what a program prints");
    if (pipe2(fds, O_CLOEXEC) < 0) {
        const int code = -errno;
        munmap(kept, sizeof(*kept));
        return error_set(err, code, "no pipe for what a program prints: %s", strerror(-code));
    }
    *o = (struct last_output){.read = fds[0], .write = fds[1], .kept = kept};
    const int r = child_start(&(struct child_spec){.begin = reader_main,
                                                   .arg = kept,
                                                   .fds = {{fds[0], READER_FD}},
                                                   .group = true,
                                                   .death_signal = SIGKILL},
                              &o->reader);
    if (r < 0) {
        last_output_close(o);
        return error_set(err, r, "no process that reads what a program prints: %s", strerror(-r));
    }
    return 0;
}

static void end_reader(struct last_output *o)
{
    if (!o->reader)
        return;
    kill(o->reader, SIGKILL);
    while (waitpid(o->reader, NULL, 0) < 0 && errno == EINTR)
        ;
    o->reader = 0;
}

const char *last_output_text(struct last_output *o, char *buf, size_t size)
{
    end_reader(o);
    (void)fcntl(o->read, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < READS_LAST && read_some(o->read, o->kept); i++)
        ;
    const size_t n = (size_t)min_u64(o->kept->n, min_u64(size - 1, LAST_OUTPUT_BYTES));
    for (size_t i = 0; i < n; i++)
        buf[i] = o->kept->ring[(o->kept->n - n + i) % LAST_OUTPUT_BYTES];
    buf[n] = '\0';
    return buf;
}

void last_output_close(struct last_output *o)
{
    if (!o->kept)
        return;
    end_reader(o);
    close(o->read);
    close(o->write);
    munmap(o->kept, sizeof(*o->kept));
    *o = (struct last_output){.kept = NULL};
}
