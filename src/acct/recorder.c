/* See recorder.h. Trusts messages from ceded, of which it is a part, and no others. */
#include "acct/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "acct/database.h"
#include "acct/days.h"
#include "api/peer.h"
#include "api/rights.h"
#include "base/child.h"
#include "base/log.h"
#include "base/principal.h"
#include "base/unasked_fds.h"

#define BATCH         64 /* rows in one transaction */
#define PRUNE_S       3600
#define JUMP_S        60
#define RETRY_S       2 /* between attempts to write, as on a full disk */
#define READER_LOOK_S 1 /* between checks whether readers have ended */
#define NICE          10
#define ASK_S         5
#define ANSWER_S      30

struct recorder {
    struct acct_db *db;
    const char *dir;
    struct acct_settings settings;
    /* The wall clock less the time since the boot. If it changes, the clock was set, and nothing is
     * deleted by the new time for an hour. The same holds at the start. */
    int64_t clock_offset_s, prune_at_s; /* prune_at_s: in seconds since the boot */
    struct acct_row rows[BATCH];        /* rows that are not written yet */
    size_t n;
    uint64_t seq;     /* number of the last of these rows */
    uint64_t dropped; /* settings.dropped as it is on disk */
    bool failed;      /* the last write failed */
    struct recorder_reader {
        pid_t pid;       /* 0: free */
        uid_t principal; /* the uid for which limits are counted, with its subordinate uids */
        bool admin;
    } readers[ACCT_READERS_MAX];
    unsigned nreaders;
    struct principals principals;
};

/* ---- rights ---- */

#ifdef SYS_landlock_create_ruleset
/* Restricts writing to files below `dir`, if the kernel has Landlock. */
static void write_only_below(const char *dir)
{
    const uint64_t file = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                          LANDLOCK_ACCESS_FS_MAKE_REG;
    const struct landlock_ruleset_attr all = {
        .handled_access_fs = file | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                             LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                             LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                             LANDLOCK_ACCESS_FS_MAKE_SYM};
    _cleanup_close_ int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);
    _cleanup_close_ int below = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct landlock_path_beneath_attr may = {.allowed_access = file, .parent_fd = below};
    if (rules < 0 || below < 0 ||
        syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &may, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        log_say(LOG_DEBUG, "without Landlock: %s", strerror(errno));
}
#else
static void write_only_below(const char *dir)
{
}
#endif

static int drop_rights(const char *dir)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    umask(077);
    setpriority(PRIO_PROCESS, 0, NICE); /* many queries must not take time from other programs */
    /* ceded's oom_score_adj protects it from the OOM killer, which is not to be inherited. */
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)write_full(fd, "0", 1);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0)
        return -errno;
    write_only_below(dir);
    return 0;
}

/* ---- queries ---- */

static void answer_end(int fd, int code, uint64_t dropped, const struct error *err, int flags)
{
    struct acct_answer a = {.last = 1, .code = code, .dropped = dropped};
    if (code < 0)
        snprintf(a.text, sizeof(a.text), "%s", err->text);
    (void)!send(fd, &a, sizeof(a), MSG_NOSIGNAL | flags);
}

static int answer_row(void *arg, const struct acct_row *row)
{
    const struct acct_answer a = {.row = *row};
    ssize_t n = send(*(const int *)arg, &a, sizeof(a), MSG_NOSIGNAL);
    return n == (ssize_t)sizeof(a) ? 0 : n < 0 ? -errno : -EIO;
}

static int reader_main(const char *dir, uint32_t only)
{
    static const struct timeval wait = {.tv_sec = ASK_S};
    struct acct_query q;
    struct acct_db *db = NULL;
    struct error err = {""};
    uint64_t dropped = 0;
    int fd = ACCT_LINK_FD;
    alarm(ANSWER_S);
    signal(SIGALRM, SIG_DFL);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (recv(fd, &q, sizeof(q), MSG_TRUNC) != (ssize_t)sizeof(q))
        return 1;
    int r = q.proto == ACCT_PROTO ? 0
                                  : error_set(&err, -EPROTO,
                                              "cede and ceded are of different releases: restart "
                                              "ceded");
    if (r == 0)
        r = acct_db_open_readonly(dir, &db, &err);
    if (r == 0)
        r = acct_db_query(db, &q, only, answer_row, &fd, &dropped, &err);
    acct_db_close(db);
    answer_end(fd, r, dropped, &err, 0);
    return r < 0;
}

static void reap_readers(struct recorder *k)
{
    for (unsigned i = k->nreaders; i-- > 0;) {
        if (waitpid(k->readers[i].pid, NULL, WNOHANG) != 0)
            k->readers[i] = k->readers[--k->nreaders];
    }
}

static bool start_reader(struct recorder *k, int fd, uid_t uid, uid_t principal, bool admin)
{
    char only[16];
    snprintf(only, sizeof(only), "%u", admin ? ACCT_ANYBODY : uid);
    const struct child_spec spec = {.file = CHILD_SELF,
                                    .argv = (const char *const[]){"cede-acct", k->dir, only, NULL},
                                    .fds = {{fd, ACCT_LINK_FD}}};
    pid_t pid;
    if (child_start(&spec, &pid) < 0)
        return false;
    k->readers[k->nreaders++] = (struct recorder_reader){pid, principal, admin};
    return true;
}

static void accept_asker(struct recorder *k)
{
    struct ucred cred;
    struct error err = {""};
    socklen_t len = sizeof(cred);
    unsigned own = 0, users = 0;
    _cleanup_(unasked_close_p) int fd = accept4(ACCT_LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return;
    const bool admin = peer_is_admin(fd, &cred, (gid_t)k->settings.admin_gid);
    const uid_t principal = principal_of(&k->principals, cred.uid, cred.pid);
    for (unsigned i = 0; i < k->nreaders; i++) {
        own += !k->readers[i].admin && k->readers[i].principal == principal;
        users += !k->readers[i].admin;
    }
    const bool full = k->nreaders == ACCT_READERS_MAX ||
                      (!admin && (own >= ACCT_READERS_PER_USER ||
                                  users >= ACCT_READERS_MAX - ACCT_READERS_PER_USER)) ||
                      !acct_db_admits(k->db, k->nreaders);
    if (full) {
        error_set(&err, -EUSERS, "too many questions at once: try again later");
        answer_end(fd, -EUSERS, 0, &err, MSG_DONTWAIT);
    } else if (start_reader(k, fd, cred.uid, principal, admin)) {
        close(TAKE_FD(fd));
    }
}

/* ---- rows ---- */

static int prune(struct recorder *k, struct error *err)
{
    const int64_t boot_s = (int64_t)(read_clock_ns(CLOCK_BOOTTIME) / NSEC_PER_SEC),
                  wall_s = (int64_t)(read_clock_ns(CLOCK_REALTIME) / NSEC_PER_SEC),
                  offset_s = wall_s - boot_s;
    const bool jumped = !k->prune_at_s || llabs(offset_s - k->clock_offset_s) > JUMP_S;
    k->clock_offset_s = offset_s;
    if (jumped)
        k->prune_at_s = boot_s + PRUNE_S;
    if (boot_s < k->prune_at_s || !k->settings.keep_days)
        return 0;
    k->prune_at_s = boot_s + PRUNE_S;
    int r = acct_db_prune(k->db, wall_s - (int64_t)k->settings.keep_days * DAY_S, err);
    return r == -EUCLEAN ? r : 0; /* after other errors the next hour tries again */
}

/* Writes the rows that were taken and confirms them. Rows that cannot be written are kept, and no
 * others are taken meanwhile, as ceded keeps those. */
static int recorder_write(struct recorder *k, struct error *err)
{
    const struct acct_settings *s = &k->settings;
    int r = k->n ? acct_db_put(k->db, k->rows, k->n, err) : 0;
    if (r == 0 && s->dropped != k->dropped)
        r = acct_db_dropped(k->db, s->session, s->dropped, err);
    if (r == -EUCLEAN)
        return r; /* the next recorder sets the file aside */
    if (r < 0 && !k->failed)
        log_say(LOG_ERR, "%s; trying again every %d s", err->text, RETRY_S);
    k->failed = r < 0;
    if (r < 0)
        return 0;
    if (k->n) /* if there is no room, the next answer confirms these rows as well */
        (void)!send(ACCT_LINK_FD, &k->seq, sizeof(k->seq), MSG_DONTWAIT | MSG_NOSIGNAL);
    k->n = 0;
    k->dropped = s->dropped;
    return prune(k, err);
}

/* Takes the rows and settings that are there, up to a batch. 1: ceded has ended. */
static int recorder_take(struct recorder *k, struct error *err)
{
    struct acct_message m;
    while (k->n < BATCH) {
        const ssize_t got = recv_last(ACCT_LINK_FD, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (got == 0)
            return 1;
        if (got < 0)
            return errno == EAGAIN ? 0 : 1;
        if (got != (ssize_t)sizeof(m))
            return error_set(err, -EIO, "a message of %zd bytes from ceded", got);
        if (m.kind == ACCT_ROW) {
            k->rows[k->n++] = m.row;
            k->seq = m.seq;
        } else {
            k->settings = m.settings;
        }
    }
    return 0;
}

static int recorder_loop(struct recorder *k, struct error *err)
{
    int r = 0, ended = 0;
    while (r == 0 && !ended) {
        struct pollfd p[] = {{.fd = ACCT_LINK_FD, .events = k->failed ? 0 : POLLIN},
                             {.fd = ACCT_LISTEN_FD, .events = POLLIN}};
        int wait_s = k->nreaders ? READER_LOOK_S : k->failed ? RETRY_S : PRUNE_S;
        if (poll(p, ARRAY_SIZE(p), wait_s * 1000) < 0)
            continue;
        reap_readers(k);
        if (!k->failed && p[0].revents)
            ended = recorder_take(k, err);
        else if (p[0].revents) /* ceded has ended */
            ended = 1;
        r = ended < 0 ? ended : recorder_write(k, err);
        if (r == 0 && p[1].revents)
            accept_asker(k);
    }
    return r < 0 ? r : k->failed ? -EIO : 0;
}

int acct_recorder_main(int argc, char **argv)
{
    static struct recorder k = {.settings.admin_gid = ADMIN_NO_GROUP};
    struct error err = {""}, note = {""};
    uint64_t only = 0;
    if (argc < 2 || argc > 3 || argv[1][0] != '/' ||
        (argc == 3 && parse_u64(argv[2], 0, UINT32_MAX, &only) < 0)) {
        fprintf(stderr, "cede-acct is started by ceded, not by hand\n");
        return 2;
    }
    if (child_begin("cede-acct") < 0)
        return 1;
    if (argc == 3)
        return reader_main(argv[1], (uint32_t)only);
    k.dir = argv[1];
    int r = drop_rights(k.dir);
    if (r < 0)
        error_set(&err, r, "cannot give up its rights: %s", strerror(-r));
    if (r == 0)
        r = acct_db_open(k.dir, ACCT_VERSION, &k.db, &note, &err);
    if (note.text[0])
        log_say(LOG_ERR, "%s", note.text);
    if (r == 0)
        r = recorder_loop(&k, &err);
    if (r < 0)
        log_say(LOG_ERR, "%s", err.text);
    acct_db_close(k.db);
    principals_free(&k.principals);
    return r == -EPROTO || r == -ENOSYS ? ACCT_EXIT_OFF : r < 0;
}
