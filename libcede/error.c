/* See error.h. */
#include "libcede/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcede/api.h"
#include "libcede/pure/times.h"

#define TEXT_MAX 256

/* Not _Thread_local: in a library that is opened at run time there is little room for that. */
static pthread_once_t error_once = PTHREAD_ONCE_INIT;
static pthread_key_t error_key;
static bool error_kept;

static void error_begin(void)
{
    error_kept = pthread_key_create(&error_key, free) == 0;
}

/* This thread's text; NULL: it never had one. */
static char *error_text(void)
{
    pthread_once(&error_once, error_begin);
    return error_kept ? pthread_getspecific(error_key) : NULL;
}

int cede_fail(int r, const char *format, ...)
{
    char *text = error_text();
    if (!text && format && error_kept && (text = malloc(TEXT_MAX)) &&
        pthread_setspecific(error_key, text) != 0) {
        free(text);
        text = NULL;
    }
    if (!text)
        return r;
    text[0] = '\0';
    if (format) {
        va_list args;
        va_start(args, format);
        vsnprintf(text, TEXT_MAX, format, args);
        va_end(args);
    }
    return r;
}

CEDE_API const char *cede_error_text(void)
{
    const char *text = error_text();
    return text ? text : "";
}

int cede_timeout_check(cede_timeout t)
{
    if (timeout_valid(t))
        return cede_fail(0, NULL);
    return cede_fail(-EINVAL,
                     "a time-out of %lld us is negative: give 0 or more, CEDE_TIMEOUT_DEFAULT or "
                     "CEDE_TIMEOUT_FOREVER",
                     (long long)t);
}
