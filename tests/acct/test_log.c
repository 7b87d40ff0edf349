/* The accounts' file as SQLite sees it: one that an older cede made, and readers that take turns,
 * so that there is always one: the log does not grow for as long as they like. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "acct_env.h"

#define ROWS 64U
#define PUTS 100000U /* far more than it takes */

static off_t log_bytes(void)
{
    struct stat st;
    assert_int_equal(stat(path_of(ACCT_FILE "-wal"), &st), 0);
    return st.st_size;
}

static void put_rows(struct acct_db *db, uint64_t piece)
{
    static struct acct_row v[ROWS];
    struct error err;
    for (unsigned i = 0; i < ROWS; i++)
        v[i] = (struct acct_row){.number = i * 1000 + piece % 1000, .end_s = 1, .gpus = 1};
    if (acct_db_put(db, v, ROWS, &err) < 0)
        fail_msg("%s", err.text);
}

/* Looks at what there is now, for as long as it likes. */
static sqlite3 *reader_begin(void)
{
    sqlite3 *sql;
    assert_int_equal(sqlite3_open_v2(path_of(ACCT_FILE), &sql, SQLITE_OPEN_READONLY, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_exec(sql, "BEGIN; SELECT 1 FROM row LIMIT 1", NULL, NULL, NULL),
                     SQLITE_OK);
    return sql;
}

TEST_OF_ACCOUNTS(readers_in_turns)
{
    struct error note;
    struct acct_db *db = open_version(ACCT_VERSION, &note);
    unsigned n = 0;
    put_rows(db, n);
    sqlite3 *reader = reader_begin();
    while (n < PUTS && acct_db_admits(db, 1)) {
        put_rows(db, ++n);
        sqlite3 *next = reader_begin(); /* before the other ends */
        sqlite3_close(reader);
        reader = next;
    }
    assert_in_range(n, 100, PUTS - 1); /* a few are no reason */
    sqlite3_close(reader);
    assert_true(acct_db_admits(db, 0));
    assert_int_equal(log_bytes(), 0);
    assert_true(acct_db_admits(db, 1));
    /* Nobody reads: it is short by itself. */
    for (unsigned i = 0; i < n; i++)
        put_rows(db, i);
    assert_true(acct_db_admits(db, 1));
    acct_db_close(db);
}

static int count_row(void *arg, const struct acct_row *r)
{
    unsigned *n = arg;
    ++*n;
    assert_int_equal(r->number, 7);
    assert_string_equal(r->name, "train");
    assert_string_equal(r->pod.pod, "");
    return 0;
}

static int ask_rows(unsigned *n, uint64_t *dropped)
{
    const struct acct_query q = {.end_s = 10, .uid = ACCT_ANYBODY, .class = CLASS_COUNT};
    struct acct_db *db;
    struct error err;
    *n = 0;
    assert_int_equal(acct_db_open_readonly(dir, &db, &err), 0);
    const int r = acct_db_query(db, &q, ACCT_ANYBODY, count_row, n, dropped, &err);
    acct_db_close(db);
    return r;
}

TEST_OF_ACCOUNTS(older)
{
    struct acct_row row = {.number = 7, .begin_s = 1, .end_s = 2, .name = "train"};
    struct error note, err;
    struct acct_db *db = open_version(ACCT_VERSION, &note);
    unsigned n;
    uint64_t dropped;
    sqlite3 *sql;
    assert_int_equal(acct_db_put(db, &row, 1, &err), 0);
    acct_db_close(db);
    /* What version 1 did not have yet. */
    assert_int_equal(sqlite3_open(path_of(ACCT_FILE), &sql), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sql,
                                  "ALTER TABLE row DROP COLUMN namespace; "
                                  "ALTER TABLE row DROP COLUMN pod_name; "
                                  "ALTER TABLE row DROP COLUMN container_name; "
                                  "DROP TABLE lost; PRAGMA user_version = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(sql);
    assert_int_equal(ask_rows(&n, &dropped), -EPROTO);
    for (int i = 0; i < 2; i++) {
        db = open_version(ACCT_VERSION, &note);
        assert_string_equal(note.text, "");
        assert_int_equal(acct_db_dropped(db, 5, 3, &err), 0);
        assert_int_equal(acct_db_dropped(db, 6, 4, &err), 0);
        acct_db_close(db);
        assert_int_equal(ask_rows(&n, &dropped), 0);
        assert_int_equal(n, 1);
        assert_int_equal(dropped, 7);
    }
    assert_int_equal(files_like("*damaged*", false), 0);
}
