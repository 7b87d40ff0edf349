/* What `cede top` makes of replies: shares, order, filter, a selection that stays,
 * and text that fits and steers no terminal. */
#include <locale.h>
#include <math.h>

#include "../test.h"
#include "base/util.h"
#include "cli/top/text.h"

#define SECOND NSEC_PER_SEC

/* One job on GPU 0: what it has used of it until then, and waited. */
struct fact {
    int number;
    const char *name, *class, *state;
    int uid;
    double known, gpu, counted, waited;
};

static json_t *reply_of(const struct fact *jobs, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            all,
            json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:[i], s:I, s:{s:f, s:[{s:i, s:f, "
                      "s:f, s:f}]}}",
                      "number", jobs[i].number, "name", jobs[i].name, "class", jobs[i].class,
                      "state", jobs[i].state, "uid", jobs[i].uid, "pid", 1000 + jobs[i].number,
                      "weight", 100, "gpus", 0, "memory_bytes", (json_int_t)jobs[i].number << 20,
                      "counts", "known_s", jobs[i].known, "gpus", "gpu", 0, "gpu_s", jobs[i].gpu,
                      "counted_s", jobs[i].counted, "waited_s", jobs[i].waited));
    return json_pack("{s:b, s:o, s:[{s:i, s:s}], s:[{s:i, s:s, s:i}]}", "daemon", 1, "jobs", all,
                     "gpus", "index", 0, "label", "soft0", "unmanaged", "pid", 77, "name", "x",
                     "uid", 5);
}

static struct top_model m;

static void show(const struct fact *jobs, size_t n, uint64_t now_ns)
{
    json_t *reply = reply_of(jobs, n);
    assert_non_null(reply);
    assert_int_equal(top_model_update(&m, reply, now_ns), 0);
    top_model_arrange(&m);
    json_decref(reply);
}

static const struct fact before[] = {
    {1, "serve", "latency", "running", 5, 10, 4, 10, 1},
    {2, "train", "batch", "waiting", 6, 10, 2, 10, 5},
    {3, "Train-b", "batch", "running", 5, 10, 2, 10, 0},
};
static const struct fact after[] = {
    {1, "serve", "latency", "running", 5, 12, 4.2, 12, 1},
    {2, "train", "batch", "waiting", 6, 12, 3.2, 12, 6},
    {3, "Train-b", "batch", "paused", 5, 12, 2.6, 12, 0},
};

static int empty(void **state)
{
    top_model_init(&m);
    return 0;
}

static int started(void **state)
{
    top_model_init(&m);
    top_model_height(&m, 10);
    show(before, ARRAY_SIZE(before), 100 * SECOND);
    show(after, ARRAY_SIZE(after), 102 * SECOND);
    return 0;
}

static int ended(void **state)
{
    top_model_free(&m);
    return 0;
}

/* The numbers of the rows in order; 0: in no job. */
static const char *order(void)
{
    static char buf[64];
    buf[0] = '\0';
    for (size_t i = 0; i < m.nlines && i < 60; i++)
        snprintf(buf + i, sizeof(buf) - i, "%d", (int)m.lines[i]->number);
    return buf;
}

TEST_WITH(shares_are_differences, empty, ended)
{
    show(before, ARRAY_SIZE(before), 100 * SECOND);
    assert_true(m.rows[0].share < 0 && m.rows[0].wait < 0); /* of one reply nothing follows */
    show(after, ARRAY_SIZE(after), 102 * SECOND);
    static const double shares[] = {0.1, 0.6, 0.3}, waits[] = {0, 0.5, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(m.rows[i].share - shares[i]) < 1e-6);
        assert_true(fabs(m.rows[i].wait - waits[i]) < 1e-6);
    }
    assert_true(fabs(m.gpus[0].share - 1) < 1e-6);
    assert_int_equal(m.gpus[0].jobs, 3);
    /* What was not counted anew stays; sums that begin anew say nothing yet. */
    struct fact later[3];
    memcpy(later, after, sizeof(later));
    later[0].known = later[1].known = 12.5;
    later[2] = (struct fact){3, "Train-b", "batch", "running", 5, 1, 0.5, 1, 0};
    show(later, 3, 102 * SECOND + SECOND / 2);
    assert_true(fabs(m.rows[1].share - 0.6) < 1e-6);
    assert_true(m.rows[2].share < 0);
    /* A count that covers less of the time than it is old, and no more than all of the GPU */
    later[1] = (struct fact){2, "train", "batch", "running", 6, 14, 9, 13, 6};
    show(later, 3, 104 * SECOND);
    assert_true(fabs(m.rows[1].share - 1) < 1e-6);
}

TEST_WITH(knows_no_share_without_counts, empty, ended)
{
    struct fact j = {1, "a", "batch", "running", 5, 0, 0, 0, 0};
    show(&j, 1, SECOND);
    j.known = 2;
    show(&j, 1, 3 * SECOND);
    assert_true(m.rows[0].share < 0);
}

TEST(sorts_and_filters)
{
    static const struct {
        enum top_column sort;
        bool inverted;
        const char *filter, *want;
    } all[] = {
        {TOP_SHARE, false, "", "2310"},       {TOP_SHARE, true, "", "1320"},
        {TOP_JOB, false, "", "1230"},         {TOP_JOB, true, "", "3210"},
        {TOP_CLASS, false, "", "1230"},       {TOP_WAIT, false, "", "2130"},
        {TOP_MEM, false, "", "3210"},         {TOP_STATE, false, "", "3120"},
        {TOP_NAME_COLUMN, false, "", "3120"}, {TOP_PID, true, "", "3210"},
        {TOP_SHARE, false, "TRAIN", "23"},    {TOP_SHARE, false, "#1", "1"},
        {TOP_SHARE, false, "paused", "3"},    {TOP_SHARE, false, "1002", "2"},
        {TOP_SHARE, false, "absent", ""},     {TOP_USER, false, "", "2130"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        started(NULL);
        for (size_t r = 0; r < m.nrows; r++)
            snprintf(m.rows[r].user, sizeof(m.rows[r].user), "user%d", 9 - (int)m.rows[r].uid);
        m.sort = all[i].sort;
        m.inverted = all[i].inverted;
        snprintf(m.filter, sizeof(m.filter), "%s", all[i].filter);
        top_model_arrange(&m);
        assert_string_equal(order(), all[i].want);
        ended(NULL);
    }
}

TEST_WITH(selection_stays_on_its_row, started, ended)
{
    /* The rows are 2, 3, 1 and one in no job. */
    top_model_select(&m, 1);
    assert_int_equal(top_model_selected(&m)->number, 3);
    m.sort = TOP_JOB;
    top_model_arrange(&m);
    assert_int_equal(m.at, 2);
    assert_int_equal(top_model_selected(&m)->number, 3);
    m.inverted = true;
    top_model_arrange(&m);
    assert_int_equal(m.at, 0);
    /* A job before it ends. */
    show(&after[2], 1, 103 * SECOND);
    assert_int_equal(top_model_selected(&m)->number, 3);
    /* It ends: what comes in its place. */
    show(after, 2, 104 * SECOND);
    assert_int_equal(m.at, 0);
    assert_int_equal(top_model_selected(&m)->number, 2);
    /* Nobody's are known by pid. */
    top_model_move(&m, 100);
    assert_int_equal(top_model_selected(&m)->pid, 77);
    show(after, 3, 105 * SECOND);
    assert_int_equal(top_model_selected(&m)->pid, 77);
    /* The first line is whatever is there. */
    top_model_move(&m, -100);
    assert_int_equal(top_model_selected(&m)->number, 3);
    m.inverted = false;
    top_model_arrange(&m);
    assert_int_equal(top_model_selected(&m)->number, 1);
    show(after, 0, 106 * SECOND);
}

TEST_WITH(scrolls, empty, ended)
{
    enum { N = 300 };
    static struct fact many[N];
    for (int i = 0; i < N; i++)
        many[i] = (struct fact){i + 1, "job", "batch", "running", 5, 1, 0, 1, 0};
    show(many, N, SECOND);
    top_model_height(&m, 7);
    for (long step = -500; step <= 500; step += 37) {
        top_model_move(&m, step);
        assert_true(m.first <= m.at && m.at < m.first + 7 && m.first + 7 <= m.nlines);
    }
    top_model_height(&m, 1000);
    assert_int_equal(m.first, 0);
}

TEST_WITH(refuses_what_is_no_job, started, ended)
{
    static const char *const replies[] = {
        "{}",
        "{\"jobs\":7,\"gpus\":{}}",
        ("{\"daemon\":true,\"jobs\":[{},{\"number\":-1,\"pid\":1},{\"number\":1,\"pid\":0},"
         "{\"number\":1,\"pid\":99999999999},[],null,3]}"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
        json_t *reply = json_loads(replies[i], 0, NULL);
        assert_int_equal(top_model_update(&m, reply, (200 + i) * SECOND), 0);
        top_model_arrange(&m);
        assert_int_equal(m.nrows, 0);
        assert_null(top_model_selected(&m));
        json_decref(reply);
    }
    /* Of fields of other kinds, and of one job twice */
    json_t *reply =
        json_loads("{\"daemon\":true,\"gpus\":[{\"index\":-1},{\"index\":99},7,{\"index\":0},"
                   "{\"index\":0}],\"jobs\":[{\"number\":1,\"pid\":9,\"gpus\":[7,\"x\",0],"
                   "\"name\":7,\"class\":{},\"counts\":{\"known_s\":-1e300,\"gpus\":["
                   "{\"gpu\":0,\"gpu_s\":1e300,\"counted_s\":1e300},3]}},"
                   "{\"number\":1,\"pid\":9}]}",
                   0, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(top_model_update(&m, reply, (300 + i) * SECOND), 0);
        top_model_arrange(&m);
        char line[TOP_LINE], cell[CELL];
        top_gpu_line(line, &m.gpus[0], 80);
        for (enum top_column c = 0; c < TOP_COLUMNS; c++)
            top_cell(cell, &m, &m.rows[0], c);
        json_decref(top_json(&m));
    }
    json_decref(reply);
}

/* Over some seconds, since ceded counts once per second; a sum that went back is another ceded's.
 */
TEST_WITH(idle_gpus, empty, ended)
{
    static const struct {
        double s, idle_s;
        const char *text;
    } all[] = {
        {400, 10, "soft0"},
        {402, 12, "soft0"},
        {405, 12, "40% idle while jobs wait"},
        {406, 13, "40% idle while jobs wait"},
        {410, 12.1, "soft0"},
        {411, 0.5, "soft0"},
        {421, 10.5, "100% idle while jobs wait"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        char line[TOP_LINE];
        json_t *reply = json_pack("{s:b, s:[{s:i, s:s, s:f}]}", "daemon", 1, "gpus", "index", 0,
                                  "label", "soft0", "idle_while_waiting_s", all[i].idle_s);
        assert_int_equal(top_model_update(&m, reply, (uint64_t)all[i].s * SECOND), 0);
        json_decref(reply);
        top_gpu_line(line, &m.gpus[0], 80);
        if (!strstr(line, all[i].text))
            fail_msg("no %s in %s", all[i].text, line);
        json_t *o = top_json(&m);
        const json_t *gpu = json_array_get(json_object_get(o, "gpus"), 0);
        assert_true(json_number_value(json_object_get(gpu, "idle_while_waiting_s")) ==
                    all[i].idle_s);
        json_decref(o);
    }
}

TEST_WITH(counts_paused_jobs, started, ended)
{
    static const struct fact jobs[] = {{1, "a", "batch", "running", 0, 1, 0, 1, 0},
                                       {2, "b", "batch", "paused", 0, 1, 0, 1, 0},
                                       {3, "c", "batch", "throttled", 0, 1, 0, 1, 0}};
    char line[TOP_LINE];
    show(jobs, ARRAY_SIZE(jobs), SECOND);
    top_summary(line, &m);
    assert_string_equal(line, "3 jobs: 1 running, 1 waiting, 1 paused; 1 in no job");
}

TEST(fits_text)
{
    static const struct {
        const char *text;
        unsigned width;
        bool right;
        const char *want;
    } all[] = {
        {"abc", 5, false, "abc  "},
        {"abc", 5, true, "  abc"},
        {"abcdef", 3, false, "abc"},
        {"", 2, false, "  "},
        {"a\033[2J\007\x7f", 8, false, "a?[2J?? "},
        {"漢字", 4, false, "漢字"},
        {"漢字", 3, false, "漢 "}, /* no half of one */
        {"漢字", 3, true, " 漢"},
        {"e\u0301x", 3, false, "e\u0301x "},
        {"e\u0301\u0301\u0301\u0301\u0301x", 2, false, "e\u0301\u0301x"},
        {"\u0301x", 2, false, "x "},
        {"a\u202eb", 3, false, "a??"},
        {"a\xff\xc3", 3, false, "a??"},
        {"\xc2\x9b"
         "2J",
         4, false, "??2J"}, /* a control of one byte elsewhere */
    };
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        char buf[TOP_LINE];
        assert_string_equal(top_fit(buf, all[i].text, all[i].width, all[i].right), all[i].want);
    }
    char big[4 * TOP_LINE], buf[TOP_LINE];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_true(strlen(top_fit(buf, big, 4000, false)) < TOP_LINE);
    assert_true(strlen(top_fit(buf, "x", 4000, true)) < TOP_LINE);
    setlocale(LC_CTYPE, "C");
    assert_string_equal(top_fit(buf, "漢", 4, false), "??? ");
}

TEST_WITH(columns_fit_any_width, started, ended)
{
    for (unsigned width = 1; width < 400; width++) {
        struct top_layout l = top_layout(&m, width);
        unsigned sum = 0;
        for (enum top_column c = 0; c < TOP_COLUMNS; c++)
            sum += l.width[c] ? l.width[c] + 1 : 0;
        if (width >= 40) {
            assert_int_equal(sum - 1, width);
            assert_true(l.width[TOP_STATE] > 0);
        }
        if (width >= 80)
            assert_true(l.width[TOP_BAR] && l.width[TOP_WEIGHT] && l.width[TOP_MEM]);
        assert_true(l.width[TOP_JOB] && l.width[TOP_NAME_COLUMN] >= 10);
        assert_int_equal(l.width[TOP_SPEED], 0); /* nobody has one */
    }
}

/* A unit that is cut is another one. */
TEST_WITH(due_times_fit, started, ended)
{
    static const struct {
        json_int_t in_us;
        const char *want;
    } all[] = {
        {-28900, "late 28.9ms"}, {-999600, "late 1s"}, {-3600000000, "late 3600s"},
        {-999, "late 999us"},    {812000, "in 812ms"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        json_t *reply = reply_of(after, ARRAY_SIZE(after));
        json_t *train = json_array_get(json_object_get(reply, "jobs"), 1);
        json_object_set_new(train, "due", json_pack("{s:I}", "in_us", all[i].in_us));
        assert_int_equal(top_model_update(&m, reply, (103 + i) * SECOND), 0);
        top_model_arrange(&m);
        json_decref(reply);
        char cell[CELL];
        for (size_t row = 0; row < m.nrows; row++) {
            if (m.rows[row].number == 2)
                top_cell(cell, &m, &m.rows[row], TOP_DUE);
        }
        assert_string_equal(cell, all[i].want);
        assert_true(strlen(cell) <= top_layout(&m, 300).width[TOP_DUE]);
    }
}

TEST(names_containers_and_units)
{
#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const char *const all[][2] = {
        {"/system.slice/docker-" ID ".scope", "0123456789ab"},
        {"/docker/" ID, "0123456789ab"},
        {"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope", "0123456789ab"},
        {"/system.slice/serve.service", "serve.service"},
        {"/user.slice/user-1000.slice/session-3.scope", "session-3"},
        {"/", ""},
        {"", ""},
        {"/a/b\033[2J", "b?[2J"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        char where[TOP_WHERE];
        top_where(where, all[i][0]);
        assert_string_equal(where, all[i][1]);
    }
}
