/* Inside libcede: calls that may wait, or that ask the driver, the daemon or functions of the
 * program. Until such a call returns, its thread is not cancelled (pthread_cancel(3)): it would
 * leave locks locked, and others would wake a condition on its stack. And errno is what it was. */
#ifndef CEDE_LIBCEDE_CALL_H
#define CEDE_LIBCEDE_CALL_H

#include <errno.h>
#include <pthread.h>

struct call {
    int error, cancel;
};

static inline struct call call_begin(void)
{
    struct call c = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c.cancel);
    return c;
}

static inline void call_end(const struct call *c)
{
    pthread_setcancelstate(c->cancel, NULL);
    errno = c->error;
}

/* The first line of such a function. */
#define WHOLE_CALL __attribute__((cleanup(call_end), unused)) const struct call call = call_begin()

#endif
