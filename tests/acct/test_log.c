/* Readers that take turns, so that there is always one: the log of the accounts does not grow for
 * as long as they like. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "acct/database.h"

#define ROWS 64U
#define PUTS 100000U /* far more than it takes */

static char dir[64];

static int begin(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/cede-acct-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    char pattern[96];
    glob_t g;
    snprintf(pattern, sizeof(pattern), "%s/*", dir);
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++)
            unlink(g.gl_pathv[i]);
        globfree(&g);
    }
    return rmdir(dir);
}

static off_t log_bytes(void)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/" ACCT_FILE "-wal", dir);
    assert_int_equal(stat(path, &st), 0);
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
    char path[128];
    sqlite3 *sql;
    snprintf(path, sizeof(path), "%s/" ACCT_FILE, dir);
    assert_int_equal(sqlite3_open_v2(path, &sql, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(sql, "BEGIN; SELECT 1 FROM row LIMIT 1", NULL, NULL, NULL),
                     SQLITE_OK);
    return sql;
}

static void readers_in_turns(void **state)
{
    (void)state;
    struct acct_db *db;
    struct error note, err;
    unsigned n = 0;
    if (acct_db_open(dir, ACCT_VERSION, &db, &note, &err) < 0)
        fail_msg("%s", err.text);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_in_turns, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
