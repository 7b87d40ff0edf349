/* What code of ours that runs in other people's programs does to the threads that call it. */
#ifndef CEDE_LIB_STAY_H
#define CEDE_LIB_STAY_H

#include <errno.h>
#include <pthread.h>

/* A thread's stay in our code: it is not cancelled there (pthread_cancel(3)), where it would leave
 * locks locked, or a condition on its stack that others wake; and it finds its errno as it was. */
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

/* The first line of a function that is one: it may wait, or asks the driver, the daemon or
 * functions of the program. */
#define WHOLE_CALL __attribute__((cleanup(stay_end), unused)) const struct stay stay = stay_begin()

#endif
