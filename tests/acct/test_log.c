/* Readers that take turns, so that there is always one: the log of the accounts does not grow for
 * as long as they like. */
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
