/* See error.h. */
#include "libcede/error.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/owner.h"
#include "libcede/pure/times.h"

#define TEXT_MAX 512

void (*_Atomic cede_owner_closed)(const void *closed);
/* initial-exec: other models call the dynamic linker, and libcede needs libc alone. */
_Thread_local struct cede_call cede_call_now __attribute__((tls_model("initial-exec")));
_Thread_local const struct owner_frame *cede_owner_frames
    __attribute__((tls_model("initial-exec")));

/* Texts are not _Thread_local: a library that is opened at run time has little room for that. */
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
    if (!cede_call_now.name)
        return r;
    char *text = error_text();
    if (!text && error_kept && (text = malloc(TEXT_MAX)) &&
        pthread_setspecific(error_key, text) != 0) {
        free(text);
        text = NULL;
    }
    cede_call_now.said = cede_call_now.name;
    cede_call_now.code = text ? r : 0;
    if (!text)
        return r;
    va_list args;
    va_start(args, format);
    int n = snprintf(text, TEXT_MAX, "%s: ", cede_call_now.name);
    vsnprintf(text + n, (size_t)(TEXT_MAX - n), format, args);
    va_end(args);
    return r;
}

CEDE_API const char *cede_error_text(void)
{
    const char *text = cede_call_now.code ? error_text() : NULL;
    return text ? text : "";
}

const char *cede_errno_words(int r)
{
    return r < 0 && r > -4096 ? strerror(-r)
                              : "no errno value: see that function, or the driver's error codes";
}

int cede_owner_fail(const struct lease_owner *o, int r)
{
    const int why = r == -ETIMEDOUT || r == -ECANCELED ? owner_stopped(o) : 0;
    if (why != -ETIMEDOUT && why != -ECANCELED)
        return why ? why : r;
    return cede_fail(-ECANCELED, "%s: return", STOPPED_TEXT(why));
}

int cede_no_memory(void)
{
    return cede_fail(-ENOMEM, "too little memory: free some");
}

int cede_say(int r, const struct cede_saying *rows)
{
    if (r >= 0)
        cede_succeed();
    if (r >= 0 || (r == cede_call_now.code && cede_call_now.said == cede_call_now.name))
        return r;
    while (rows->r && rows->r != r)
        rows++;
    return r == -ENOMEM && !rows->text
               ? cede_no_memory()
               : cede_fail(r, "%s", rows->text ? rows->text : cede_errno_words(r));
}

bool cede_timeout_valid(const char *name, cede_timeout t, bool has_default)
{
    if (t != CEDE_TIMEOUT_DEFAULT)
        return IS(t >= 0, "a %s of %lld us is negative: give 0 or more%s or CEDE_TIMEOUT_FOREVER",
                  name, (long long)t, has_default ? ", CEDE_TIMEOUT_DEFAULT" : ",");
    return IS(has_default, "%s is CEDE_TIMEOUT_DEFAULT: give 0 or more, or CEDE_TIMEOUT_FOREVER",
              name);
}

#define DIGITS(v) ((v) > -1e15L && (v) < 1e15L ? 15 : 20) /* for %Lg: large integers are whole */

bool cede_settings_check(const struct cede_setting *s)
{
    for (; s->name; s++) {
        if (s->most < s->least && s->value != 0)
            return IS(false, "flags has %#x, which this release does not know: leave it out",
                      (unsigned)s->value);
        if (s->most < s->least || (s->value >= s->least && s->value <= s->most))
            continue;
        char most[32] = " or more"; /* where nobody gives too much by mistake */
        if (s->most == s->least)
            most[0] = '\0';
        else if (s->value >= s->least || s->most < INT_MAX / 2)
            snprintf(most, sizeof(most), " to %.*Lg", DIGITS(s->most), s->most);
        return IS(false, "%s is %.*Lg: give %.15Lg%s", s->name, DIGITS(s->value), s->value,
                  s->least, most);
    }
    return true;
}
