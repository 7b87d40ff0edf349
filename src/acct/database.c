/* See database.h. */
#include "acct/database.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BUSY_MS    5000                /* wait for an earlier recorder that writes its last rows */
#define HEAP_MAX   (256 * 1024 * 1024) /* queries sort in memory */
#define PRUNED_S   "86400"
#define FREE_PAGES "2000"             /* returned to the file system per call */
#define LOG_MAX    (64 * 1024 * 1024) /* bytes; without readers the log is emptied after 4 MB */

struct acct_db {
    sqlite3 *sql;
    sqlite3_stmt *put;
};

#define X(id, name) name " INTEGER NOT NULL, "
/* The step from version i to i + 1. Released steps must not change, as databases on users' disks
 * were made by them: add new ones. */
static const char *const migrations[ACCT_VERSION] = {
    "CREATE TABLE row("
    "boot INTEGER NOT NULL, number INTEGER NOT NULL, start_ticks INTEGER NOT NULL, "
    "session INTEGER NOT NULL, piece INTEGER NOT NULL, begin_s INTEGER NOT NULL, "
    "end_s INTEGER NOT NULL, ended INTEGER NOT NULL, uid INTEGER NOT NULL, "
    "class INTEGER NOT NULL, gpus INTEGER NOT NULL, " ACCT_SUMS(
        X) "name TEXT NOT NULL, account TEXT NOT NULL, unit TEXT NOT NULL, container TEXT NOT "
           "NULL, "
           "pod TEXT NOT NULL, slurm_job INTEGER NOT NULL, "
           "PRIMARY KEY(boot, number, start_ticks, session, piece)) STRICT, WITHOUT ROWID;"
           "CREATE INDEX row_by_end ON row(end_s);",
    "CREATE TABLE lost(session INTEGER PRIMARY KEY, rows INTEGER NOT NULL) STRICT;",
    "ALTER TABLE row ADD COLUMN namespace TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE row ADD COLUMN pod_name TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE row ADD COLUMN container_name TEXT NOT NULL DEFAULT '';",
};
#undef X

/* The columns, in the order that all statements below use. */
#define X(id, name) name ", "
#define NUMBERS                                                                                    \
    "boot, number, start_ticks, session, piece, begin_s, end_s, ended, uid, class, gpus, "         \
    "slurm_job, " ACCT_SUMS(X)
#define TEXTS "name, account, unit, container, pod, namespace, pod_name, container_name"
static const char put_text[] = "INSERT OR REPLACE INTO row(" NUMBERS TEXTS ") VALUES("
#undef X
#define X(id, name) "?,"
                               "?,?,?,?,?,?,?,?,?,?,?,?," ACCT_SUMS(X) "?,?,?,?,?,?,?,?)";
#undef X
#define FIXED_NUMBERS 12

/* Attempts to open a file that seems damaged, as a read may fail for other reasons. */
#define LOOKS 3

static int db_code(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EUCLEAN;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return -EACCES;
    default:
        return -EIO;
    }
}

static int db_error(const struct acct_db *db, int rc, const char *what, struct error *err)
{
    return error_set(err, db_code(rc), "cannot %s accounting: %s", what, sqlite3_errmsg(db->sql));
}

static int db_run(struct acct_db *db, const char *sql)
{
    return sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
}

/* Reads the first column of the first row as text, "" if there is no row. */
static int db_ask(struct acct_db *db, const char *sql, char *out, size_t size)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    snprintf(out, size, "%s", text ? text : "");
    sqlite3_finalize(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int db_version(struct acct_db *db, int *out)
{
    char text[16];
    int rc = db_ask(db, "PRAGMA user_version", text, sizeof(text));
    *out = atoi(text);
    return rc;
}

/* All steps are one transaction with the version, so that a kill leaves the old or the new state.
 */
static int migrate(struct acct_db *db, int version)
{
    int is = 0, rc = db_run(db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK)
        rc = db_version(db, &is);
    for (; rc == SQLITE_OK && is < version; is++) {
        char text[48];
        rc = db_run(db, migrations[is]);
        snprintf(text, sizeof(text), "PRAGMA user_version = %d", is + 1);
        if (rc == SQLITE_OK)
            rc = db_run(db, text);
    }
    if (rc == SQLITE_OK)
        return db_run(db, "COMMIT");
    (void)db_run(db, "ROLLBACK");
    return rc;
}

static int open_file(const char *dir, int flags, struct acct_db **out, struct error *err)
{
    char path[256];
    struct acct_db *db = calloc(1, sizeof(*db));
    *out = NULL;
    if (!db)
        return error_set(err, -ENOMEM, "no memory for accounting records");
    if ((size_t)snprintf(path, sizeof(path), "%s/" ACCT_FILE, dir) >= sizeof(path)) {
        free(db);
        return error_set(err, -ENAMETOOLONG,
                         "the path of the accounting records in %.64s... is too long", dir);
    }
    sqlite3_hard_heap_limit64(HEAP_MAX);
    int rc = sqlite3_open_v2(path, &db->sql, flags | SQLITE_OPEN_NOFOLLOW, NULL);
    if (rc != SQLITE_OK) {
        int r = error_set(err, access(path, F_OK) < 0 ? -ENOENT : db_code(rc), "cannot open %s: %s",
                          path, sqlite3_errstr(rc));
        acct_db_close(db);
        return r;
    }
    sqlite3_busy_timeout(db->sql, BUSY_MS);
    *out = db;
    return 0;
}

/* The log is renamed before the file: a log alone is ignored, but a log of another file does harm.
 */
static int set_aside(const char *dir, struct error *note, struct error *err)
{
    static const char *const parts[] = {"-wal", "-shm", ""};
    char from[300], to[400], when[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        snprintf(from, sizeof(from), "%s/" ACCT_FILE "%s", dir, parts[i]);
        snprintf(to, sizeof(to), "%s/" ACCT_FILE ".damaged-%s%s", dir, when, parts[i]);
        if (rename(from, to) < 0 && errno != ENOENT)
            return error_set(err, -errno, "cannot set the damaged %s aside: %s", from,
                             strerror(errno));
    }
    error_set(note, 0, "damaged accounting records are set aside as %s, and new ones begin", to);
    return 0;
}

/* Whether a check failed because of a read error, which does not mean that the file is damaged. */
static bool could_not_read(const char *text)
{
    const char *code = strstr(text, "error code=");
    const int rc = code ? atoi(code + strlen("error code=")) & 0xff : SQLITE_CORRUPT;
    return rc != SQLITE_CORRUPT && rc != SQLITE_NOTADB;
}

static int begin_writing(struct acct_db *db, int version, struct error *err)
{
    char text[256] = "";
    int is = 0;
    /* auto_vacuum works only before the first table; a kill or a full disk does WAL no harm. */
    int rc = db_run(db, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
                        "PRAGMA synchronous = NORMAL");
    if (rc == SQLITE_OK)
        rc = db_version(db, &is);
    if (rc == SQLITE_OK && is > version)
        return error_set(err, -EPROTO,
                         "accounting records are of a newer cede (version %d, this one knows %d)",
                         is, version);
    if (rc == SQLITE_OK)
        rc = db_ask(db, "PRAGMA quick_check(1)", text, sizeof(text));
    if (rc == SQLITE_OK && strcmp(text, "ok") != 0)
        return error_set(err, could_not_read(text) ? -EIO : -EUCLEAN,
                         "the accounting records are damaged: %.200s", text);
    if (rc == SQLITE_OK)
        rc = migrate(db, version);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(db->sql, put_text, -1, SQLITE_PREPARE_PERSISTENT, &db->put, NULL);
    /* The tables are not as this version makes them, so they are another program's or damaged. */
    if (rc == SQLITE_ERROR)
        rc = SQLITE_CORRUPT;
    return rc == SQLITE_OK ? 0 : db_error(db, rc, "open", err);
}

bool acct_db_built(void)
{
    return true;
}

int acct_db_open(const char *dir, int version, struct acct_db **out, struct error *note,
                 struct error *err)
{
    int r = -EUCLEAN;
    note->text[0] = '\0';
    for (int i = 0; i <= LOOKS && r == -EUCLEAN; i++) {
        if (i == LOOKS && (r = set_aside(dir, note, err)) < 0)
            return r;
        r = open_file(dir, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, out, err);
        if (r == 0)
            r = begin_writing(*out, version, err);
        if (r < 0) {
            acct_db_close(*out);
            *out = NULL;
        }
    }
    return r;
}

int acct_db_open_readonly(const char *dir, struct acct_db **out, struct error *err)
{
    int r = open_file(dir, SQLITE_OPEN_READONLY, out, err);
    return r == -ENOENT ? error_set(err, r, "there are no accounting records in %s yet", dir) : r;
}

void acct_db_close(struct acct_db *db)
{
    if (!db)
        return;
    sqlite3_finalize(db->put);
    sqlite3_close(db->sql);
    free(db);
}

static int db_put_row(struct acct_db *db, const struct acct_row *r)
{
    const uint64_t fixed[FIXED_NUMBERS] = {(uint64_t)r->boot,
                                           r->number,
                                           r->start_ticks,
                                           (uint64_t)r->session,
                                           r->piece,
                                           (uint64_t)r->begin_s,
                                           (uint64_t)r->end_s,
                                           r->ended,
                                           r->uid,
                                           r->class,
                                           r->gpus,
                                           r->workload.slurm_job};
    const char *const texts[] = {
        r->name,         r->account,       r->workload.unit, r->workload.container,
        r->workload.pod, r->pod.namespace, r->pod.pod,       r->pod.container};
    int at = 0;
    for (size_t i = 0; i < FIXED_NUMBERS; i++)
        sqlite3_bind_int64(db->put, ++at, (sqlite3_int64)fixed[i]);
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        sqlite3_bind_int64(db->put, ++at, (sqlite3_int64)r->sums[i]);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        sqlite3_bind_text(db->put, ++at, texts[i], -1, SQLITE_STATIC);
    (void)sqlite3_step(db->put);
    return sqlite3_reset(db->put);
}

int acct_db_put(struct acct_db *db, const struct acct_row *v, size_t n, struct error *err)
{
    int rc = db_run(db, "BEGIN IMMEDIATE");
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = db_put_row(db, &v[i]);
    if (rc == SQLITE_OK)
        rc = db_run(db, "COMMIT");
    if (rc == SQLITE_OK)
        return 0;
    int r = db_error(db, rc, "write", err);
    (void)db_run(db, "ROLLBACK");
    return r;
}

int acct_db_dropped(struct acct_db *db, int64_t session, uint64_t rows, struct error *err)
{
    char text[128];
    snprintf(text, sizeof(text), "INSERT OR REPLACE INTO lost VALUES(%lld, %lld)",
             (long long)session, (long long)rows);
    int rc = db_run(db, text);
    return rc == SQLITE_OK ? 0 : db_error(db, rc, "write", err);
}

int acct_db_prune(struct acct_db *db, int64_t before_s, struct error *err)
{
    char text[256];
    snprintf(text, sizeof(text),
             "DELETE FROM row WHERE end_s < min(%lld, (SELECT min(end_s) FROM row) + " PRUNED_S
             "); PRAGMA incremental_vacuum(" FREE_PAGES ")",
             (long long)before_s);
    int rc = db_run(db, text);
    return rc == SQLITE_OK ? 0 : db_error(db, rc, "shorten", err);
}

bool acct_db_admits(struct acct_db *db, unsigned readers)
{
    const char *log = sqlite3_filename_wal(sqlite3_db_filename(db->sql, "main"));
    struct stat st;
    if (stat(log, &st) < 0 || st.st_size <= LOG_MAX)
        return true;
    if (!readers)
        (void)sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return !readers;
}

/* ---- queries ---- */

static void column_text(sqlite3_stmt *s, int column, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(s, column);
    snprintf(out, size, "%s", text ? text : "");
}

static void read_row(sqlite3_stmt *s, struct acct_row *r)
{
    int at = 0;
    const struct {
        char *text;
        size_t size;
    } texts[] = {{r->name, sizeof(r->name)},
                 {r->account, sizeof(r->account)},
                 {r->workload.unit, sizeof(r->workload.unit)},
                 {r->workload.container, sizeof(r->workload.container)},
                 {r->workload.pod, sizeof(r->workload.pod)},
                 {r->pod.namespace, sizeof(r->pod.namespace)},
                 {r->pod.pod, sizeof(r->pod.pod)},
                 {r->pod.container, sizeof(r->pod.container)}};
    *r = (struct acct_row){.jobs = 1, .rows = 1};
    r->boot = sqlite3_column_int64(s, at++);
    r->number = (uint64_t)sqlite3_column_int64(s, at++);
    r->start_ticks = (uint64_t)sqlite3_column_int64(s, at++);
    r->session = sqlite3_column_int64(s, at++);
    r->piece = (uint64_t)sqlite3_column_int64(s, at++);
    r->begin_s = sqlite3_column_int64(s, at++);
    r->end_s = sqlite3_column_int64(s, at++);
    r->ended = (uint32_t)sqlite3_column_int64(s, at++);
    r->uid = (uint32_t)sqlite3_column_int64(s, at++);
    r->class = (uint32_t)sqlite3_column_int64(s, at++);
    r->gpus = (uint32_t)sqlite3_column_int64(s, at++);
    r->workload.slurm_job = (uint64_t)sqlite3_column_int64(s, at++);
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        r->sums[i] = (uint64_t)sqlite3_column_int64(s, at++);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        column_text(s, at++, texts[i].text, texts[i].size);
}

static bool same_job(const struct acct_row *a, const struct acct_row *b)
{
    return a->boot == b->boot && a->number == b->number && a->start_ticks == b->start_ticks;
}

static bool same_key(enum acct_by by, const struct acct_row *a, const struct acct_row *b)
{
    switch (by) {
    case ACCT_BY_JOB:
        return same_job(a, b);
    case ACCT_BY_USER:
        return a->uid == b->uid;
    case ACCT_BY_NAME:
        return strcmp(a->name, b->name) == 0;
    case ACCT_BY_CLASS:
        return a->class == b->class;
    case ACCT_BY_UNIT:
        return strcmp(a->workload.unit, b->workload.unit) == 0;
    case ACCT_BY_POD:
        return strcmp(a->workload.pod, b->workload.pod) == 0;
    case ACCT_BY_SLURM:
        return a->workload.slurm_job == b->workload.slurm_job;
    default:
        return false;
    }
}

/* Adds the next row to a sum. Names and other texts are those of the later row. */
static void row_add(struct acct_row *sum, const struct acct_row *r)
{
    struct acct_row was = *sum;
    const bool later = r->end_s >= was.end_s;
    *sum = later ? *r : was;
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        sum->sums[i] = was.sums[i] + r->sums[i];
    sum->begin_s = r->begin_s < was.begin_s ? r->begin_s : was.begin_s;
    sum->ended = was.ended | r->ended;
    sum->gpus = was.gpus > r->gpus ? was.gpus : r->gpus;
    sum->rows = was.rows + 1;
    sum->jobs = was.jobs + !same_job(&was, r);
    sum->boot = r->boot; /* boot, number and ticks are those of the last job that was counted */
    sum->number = r->number;
    sum->start_ticks = r->start_ticks;
}

static const char *const by_columns[ACCT_BY_COUNT] = {
    [ACCT_BY_USER] = "uid, ",  [ACCT_BY_NAME] = "name, ", [ACCT_BY_CLASS] = "class, ",
    [ACCT_BY_UNIT] = "unit, ", [ACCT_BY_POD] = "pod, ",   [ACCT_BY_SLURM] = "slurm_job, "};

static int query_prepare(struct acct_db *db, const struct acct_query *q, uint32_t only,
                         sqlite3_stmt **out)
{
    char text[1024];
    if (q->by >= ACCT_BY_COUNT)
        return SQLITE_MISUSE;
#define X(id, name) name ", "
    snprintf(text, sizeof(text),
             "SELECT " NUMBERS TEXTS " FROM row WHERE begin_s < ?1 AND (end_s > ?2 OR begin_s >= "
             "?2) AND (?3 < 0 OR uid = ?3) AND (?4 < 0 OR uid = ?4) AND (?5 = %d OR class = ?5) "
             "AND (?6 = '' OR name = ?6) AND (?7 = 0 OR number = ?7) ORDER BY %sboot, number, "
             "start_ticks, session, piece",
             CLASS_COUNT, by_columns[q->by] ? by_columns[q->by] : "");
#undef X
    int rc = sqlite3_prepare_v2(db->sql, text, -1, out, NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(*out, 1, q->end_s);
    sqlite3_bind_int64(*out, 2, q->start_s);
    sqlite3_bind_int64(*out, 3, q->uid == ACCT_ANYBODY ? -1 : (sqlite3_int64)q->uid);
    sqlite3_bind_int64(*out, 4, only == ACCT_ANYBODY ? -1 : (sqlite3_int64)only);
    sqlite3_bind_int64(*out, 5, q->class);
    sqlite3_bind_int64(*out, 7, (sqlite3_int64)q->number);
    return sqlite3_bind_text(*out, 6, q->name, (int)strnlen(q->name, sizeof(q->name)),
                             SQLITE_TRANSIENT);
}

int acct_db_query(struct acct_db *db, const struct acct_query *q, uint32_t only,
                  int (*emit)(void *arg, const struct acct_row *row), void *arg, uint64_t *dropped,
                  struct error *err)
{
    struct acct_row sum = {.rows = 0}, r;
    sqlite3_stmt *s = NULL;
    char text[32];
    int stop = 0, rc = db_ask(db, "PRAGMA user_version", text, sizeof(text));
    if (rc == SQLITE_OK && atoi(text) != ACCT_VERSION)
        return error_set(err, -EPROTO, "accounting is of another version of cede: %s", text);
    if (rc == SQLITE_OK)
        rc = query_prepare(db, q, only, &s);
    while (rc == SQLITE_OK && !stop && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        rc = SQLITE_OK;
        read_row(s, &r);
        if (sum.rows && same_key((enum acct_by)q->by, &sum, &r)) {
            row_add(&sum, &r);
            continue;
        }
        if (sum.rows)
            stop = emit(arg, &sum);
        sum = r;
    }
    if (rc == SQLITE_DONE && sum.rows)
        stop = emit(arg, &sum);
    rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    int r2 = rc == SQLITE_OK ? stop : db_error(db, rc, "read", err);
    sqlite3_finalize(s);
    if (r2 == 0) {
        (void)db_ask(db, "SELECT total(rows) FROM lost", text, sizeof(text));
        *dropped = (uint64_t)atof(text);
    }
    return r2;
}
