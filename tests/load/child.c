/* See child.h. */
#include "child.h"

#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "bench/load/load.h"

void child_start(struct child *c, int (*program)(int argc, char **argv), const char *line)
{
    for (int i = 0; i < 2; i++)
        assert_non_null(c->files[i] = tmpfile());
    fflush(NULL);
    json_decref(c->last);
    c->last = NULL;
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid)
        return;
    char words[512], *argv[40] = {NULL}, *save = NULL;
    int argc = 0;
    snprintf(words, sizeof(words), "%s", line);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing behind */
    dup2(fileno(c->files[0]), STDOUT_FILENO);
    dup2(fileno(c->files[1]), STDERR_FILENO);
    int status = program(argc, argv);
    fflush(NULL);
    _exit(status);
}

static void slurp(FILE *f, char *buf, size_t size)
{
    ssize_t n = pread(fileno(f), buf, size - 1, 0);
    buf[n > 0 ? n : 0] = '\0';
}

void child_await_output(struct child *c)
{
    siginfo_t ended = {0};
    do {
        usleep(1000);
        slurp(c->files[0], c->out, sizeof(c->out));
        assert_int_equal(waitid(P_PID, (id_t)c->pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    } while (!c->out[0] && !ended.si_pid);
}

void child_end(struct child *c)
{
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    slurp(c->files[0], c->out, sizeof(c->out));
    slurp(c->files[1], c->err, sizeof(c->err));
    fclose(c->files[0]);
    fclose(c->files[1]);
    if (!WIFEXITED(status))
        fail_msg("ended by signal %d: %s", WTERMSIG(status), c->err);
    c->status = WEXITSTATUS(status);
}

const json_t *child_final(struct child *c)
{
    if (c->status || c->err[0])
        fail_msg("status %d: %s", c->status, c->err);
    size_t n = strlen(c->out), start;
    assert_true(n > 1 && c->out[n - 1] == '\n');
    for (start = n - 1; start && c->out[start - 1] != '\n'; start--)
        ;
    json_decref(c->last);
    c->last = json_loads(c->out + start, 0, NULL);
    assert_non_null(c->last);
    return c->last;
}

const json_t *child_verified(struct child *c)
{
    const json_t *line = child_final(c);
    assert_true(json_is_true(json_object_get(line, "verified")));
    return line;
}

double json_number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

void json_says(const json_t *object, const char *says)
{
    char words[160], *save = NULL;
    snprintf(words, sizeof(words), "%s", says);
    for (char *key = strtok_r(words, " ", &save); key; key = strtok_r(NULL, " ", &save)) {
        double want = strtod(strtok_r(NULL, " ", &save), NULL), got = json_number(object, key);
        if (!(fabs(got - want) < 1e-6))
            fail_msg("%s: %.9g, not %.9g", key, got, want);
    }
}

void child_load(struct child *c, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cede-load %s", line);
    child_start(c, load_main, whole);
    child_end(c);
}

void child_load_fails(struct child *c, const char *line, int status, const char *text)
{
    child_load(c, line);
    if (!strstr(c->err, text))
        fail_msg("'%s' said: %s", line, c->err);
    assert_int_equal(c->status, status);
    assert_string_equal(c->out, "");
    assert_ptr_equal(strchr(c->err, '\n'), c->err + strlen(c->err) - 1);
}
