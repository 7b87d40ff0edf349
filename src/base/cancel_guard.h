/* Protects the threads of other people's programs that call our code. */
#ifndef CEDE_BASE_CANCEL_GUARD_H
#define CEDE_BASE_CANCEL_GUARD_H

#include <errno.h>
#include <pthread.h>

/* A thread's stay in our code. It is not cancelled meanwhile (pthread_cancel(3)), because it would
 * leave locks locked, or a condition on its stack that others wake; and its errno is kept. */
struct stay {
    int error, cancel;
};

static inline struct stay stay_begin(void)
{
    struct stay s = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s.cancel);
    return s;
}

static inline void stay_end(const struct stay *s)
{
    pthread_setcancelstate(s->cancel, NULL);
    errno = s->error;
}

/* The first line of a function that may wait, or that calls the driver, the daemon or functions of
 * the program. */
#define WHOLE_CALL __attribute__((cleanup(stay_end), unused)) const struct stay stay = stay_begin()

#endif
