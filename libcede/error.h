/* Inside libcede: the one way in which a function of include/cede fails. It begins with CALL(),
 * which checks what the call cannot do without, and leaves a text for cede_error_text() whenever
 * it returns a negative errno. A text says what was called, what is wrong with what, and what to
 * do:
 *
 *     cede_pool_open: capacity is 0: give 1 to 65536
 *
 * CALL() gives the name; what fails gives what follows it, with cede_fail(), at the place that
 * knows most. What cannot say it (libcede/pure, the kernel) returns a bare errno, and the function
 * that was called ends with SAY(). */
#ifndef CEDE_LIBCEDE_ERROR_H
#define CEDE_LIBCEDE_ERROR_H

#include <errno.h>
#include <stdbool.h>

#include "base/cancel_guard.h"
#include "base/util.h"
#include "cede/cede.h"

/* What this thread is in. Small and initial-exec: see lease.c. */
struct cede_call {
    const char *name; /* of the innermost function of include/cede; NULL: the thread is in none */
    const char *said; /* the name of the one that the text is about */
    int code;         /* its errno value, below 0; 0: there is no text */
};
extern _Thread_local struct cede_call cede_call_now __attribute__((tls_model("initial-exec")));

static inline struct cede_call cede_call_begin(const char *name)
{
    struct cede_call outer = cede_call_now;
    cede_call_now = (struct cede_call){.name = name};
    return outer;
}

/* A call within another, as from a function of the program, takes the text away: so the outer one
 * fails after such calls, not before. */
static inline void cede_call_end(const struct cede_call *outer)
{
    cede_call_now.name = outer->name;
}

/* The first line of a function that can fail. It returns -EINVAL unless `needs`, which is made of
 * the conditions below, is true. */
#define CALL(needs)                                                                                \
    __attribute__((cleanup(cede_call_end), unused)) const struct cede_call cede_outer =            \
        cede_call_begin(__func__);                                                                 \
    if (!(needs))                                                                                  \
    return -EINVAL

/* The same of a function that may wait, or that calls the driver, the daemon or functions of the
 * program. */
#define LONG_CALL(needs)                                                                           \
    WHOLE_CALL;                                                                                    \
    CALL(needs)

/* Sets the text of the call that this thread is in, if it is in one that can fail; the call's name
 * stands in front. Returns r, which is below 0. */
int cede_fail(int r, const char *format, ...) __attribute__((format(printf, 2, 3)));

int cede_no_memory(void); /* the same, -ENOMEM */

/* Takes away the text of what was tried in vain. Returns 0. */
static inline int cede_succeed(void)
{
    return cede_call_now.code = 0;
}

/* An errno value below 0 in words; what the program returns may be none. */
const char *cede_errno_words(int r);
/* What a function of the program returned: 0, or an errno value below 0. Above 0 may be a driver's
 * error, and the calls that call such functions return the others for reasons of their own. */
static inline int cede_returned(int r)
{
    const bool ours =
        r == -EAGAIN || r == -EBUSY || r == -ECANCELED || r == -EDEADLK || r == -ETIMEDOUT;
    return r > 0 || r <= -4096 || ours ? -EIO : r;
}

/* "give 0", or for instance "give 0 to 7": the format, and its arguments. */
#define GIVE_0_TO   "give 0%s%.0u" /* the last is nothing for 0 */
#define UP_TO(most) (most) ? " to " : "", (most)

#define NO_CUDA "there is no CUDA, or no context is current: create one first"

/* Returns r. If it is below 0 and has no text yet, the text is that of its row, else the errno
 * value's own. */
struct cede_saying {
    int r;
    const char *text;
};
int cede_say(int r, const struct cede_saying *rows);
#define SAY(r, ...) cede_say(r, (const struct cede_saying[]){__VA_ARGS__, {0, NULL}})

/* ---- conditions: a text says which is false -------------------------------------------------- */

#define ALWAYS true

/* A condition of the caller's own, in words. */
#define IS(condition, ...) ((condition) || ((void)cede_fail(-EINVAL, __VA_ARGS__), false))

#define GIVEN(pointer)          GIVEN_AS(pointer, #pointer)
#define GIVEN_AS(pointer, name) /* as the header calls it */                                       \
    IS((pointer) != NULL, "%s is NULL: it has to be given", name)

/* Whether a struct has the size that this release knows. */
#define SIZED(size, type)                                                                          \
    IS((size) == sizeof(type), "size is %zu: give %zu, the sizeof of this release's struct",       \
       (size_t)(size), sizeof(type))

/* Whether a time-out is one: see cede_timeout. has_default: not for the default itself. */
bool cede_timeout_valid(const char *name, cede_timeout t, bool has_default);
#define TIMEOUT(t)                             cede_timeout_valid(#t, t, true)
#define TIMEOUT_SETTING(c, field, has_default) cede_timeout_valid(#field, (c)->field, has_default)

/* Whether all settings are within their limits. FLAGS: those that there are. */
struct cede_setting {
    const char *name;
    long double value, least, most; /* most < least: value has unknown flags */
};
bool cede_settings_check(const struct cede_setting *rows);
#define cede_setting(name, v, least, most) ((struct cede_setting){name, v, least, most})
#define SETTING(c, field, least, most)     cede_setting(#field, (c)->field, least, most)
#define FLAGS(c, known)                    cede_setting("flags", (c)->flags & ~(unsigned)(known), 0, -1)
#define SETTINGS(...)                                                                              \
    cede_settings_check((const struct cede_setting[]){__VA_ARGS__, {NULL, 0, 0, 0}})

#endif
