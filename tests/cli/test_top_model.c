/* What `cede top` makes of replies: shares, the last minute, order, filter, a selection that stays,
 * and text that fits and steers no terminal. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/top_text.h"
#include "lib/util.h"

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

static void show(struct top_model *m, const struct fact *jobs, size_t n, uint64_t now_ns)
{
    json_t *reply = reply_of(jobs, n);
    assert_non_null(reply);
    assert_int_equal(top_model_update(m, reply, now_ns), 0);
    assert_int_equal(top_model_arrange(m), 0);
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

static void start(struct top_model *m)
{
    top_model_init(m);
    top_model_height(m, 10);
    show(m, before, ARRAY_SIZE(before), 100 * SECOND);
    show(m, after, ARRAY_SIZE(after), 102 * SECOND);
}

/* The numbers of the rows in order; 0: in no job, a heading is left out. */
static const char *order(const struct top_model *m, char buf[static 64])
{
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < m->nlines && n < 60; i++) {
        if (m->lines[i].row < 0)
            n += (size_t)snprintf(buf + n, 64 - n, "|");
        else
            n += (size_t)snprintf(buf + n, 64 - n, "%d", (int)m->rows[m->lines[i].row]->number);
    }
    return buf;
}

static void shares_are_differences(void **state)
{
    struct top_model m;
    top_model_init(&m);
    show(&m, before, ARRAY_SIZE(before), 100 * SECOND);
    assert_true(m.rows[0]->share < 0 && m.rows[0]->wait < 0); /* of one reply nothing follows */
    show(&m, after, ARRAY_SIZE(after), 102 * SECOND);
    static const double shares[] = {0.1, 0.6, 0.3}, waits[] = {0, 0.5, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(m.rows[i]->share - shares[i]) < 1e-6);
        assert_true(fabs(m.rows[i]->wait - waits[i]) < 1e-6);
    }
    assert_true(fabs(m.gpus[0].share - 1) < 1e-6);
    assert_int_equal(m.gpus[0].jobs, 3);
    /* What was not counted anew stays; sums that begin anew say nothing yet. */
    struct fact later[3];
    memcpy(later, after, sizeof(later));
    later[0].known = later[1].known = 12.5;
    later[2] = (struct fact){3, "Train-b", "batch", "running", 5, 1, 0.5, 1, 0};
    show(&m, later, 3, 102 * SECOND + SECOND / 2);
    assert_true(fabs(m.rows[1]->share - 0.6) < 1e-6);
    assert_true(m.rows[2]->share < 0);
    /* A count that covers less of the time than it is old, and no more than all of the GPU */
    later[1] = (struct fact){2, "train", "batch", "running", 6, 14, 9, 13, 6};
    show(&m, later, 3, 104 * SECOND);
    assert_true(fabs(m.rows[1]->share - 1) < 1e-6);
    top_model_free(&m);
}

static void knows_no_share_without_counts(void **state)
{
    struct top_model m;
    struct fact j = {1, "a", "batch", "running", 5, 0, 0, 0, 0};
    top_model_init(&m);
    show(&m, &j, 1, SECOND);
    j.known = 2;
    show(&m, &j, 1, 3 * SECOND);
    assert_true(m.rows[0]->share < 0);
    top_model_free(&m);
}

static void keeps_a_minute(void **state)
{
    struct top_model m;
    struct fact j = {1, "a", "batch", "running", 5, 10, 0, 10, 0};
    top_model_init(&m);
    show(&m, &j, 1, 1000 * SECOND);
    /* Uneven looks: half of the time in the first 30 s, nothing in the next, all in the last 20. */
    static const struct {
        double seconds, share;
    } steps[] = {{0.7, 0.5}, {29.3, 0.5}, {11, 0}, {3.25, 1}, {16.75, 1}};
    double t = 0;
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        t += steps[i].seconds;
        j.known = j.counted = 10 + t;
        j.gpu += steps[i].seconds * steps[i].share;
        show(&m, &j, 1, 1000 * SECOND + (uint64_t)(t * 1e9));
    }
    /* 61 s: the last of them is not over, so parts of a minute end at 60. */
    static const double parts[] = {0.5, 0.5, 0.5, 0, 0.9, 1};
    for (unsigned i = 0; i < 6; i++)
        assert_true(fabs(top_history_part(&m.rows[0]->history, m.now_ns, i, 6) - parts[i]) < 0.11);
    char text[64];
    top_graph(text, sizeof(text), &m.rows[0]->history, m.now_ns, 1, 6, false);
    assert_int_equal(strlen(text), 6);
    assert_int_equal(text[3], ' ');
    assert_int_equal(text[5], '#');
    assert_true(text[0] != ' ' && text[0] != '#');
    /* Long after, nothing of it is left. */
    top_graph(text, sizeof(text), &m.rows[0]->history, m.now_ns + 200 * SECOND, 1, 6, false);
    assert_string_equal(text, "      ");
    top_model_free(&m);
}

static void sorts_and_filters(void **state)
{
    static const struct {
        enum top_column sort;
        bool inverted, grouped;
        const char *filter, *want;
    } all[] = {
        {TOP_SHARE, false, false, "", "2310"},       {TOP_SHARE, true, false, "", "1320"},
        {TOP_JOB, false, false, "", "1230"},         {TOP_JOB, true, false, "", "3210"},
        {TOP_CLASS, false, false, "", "1230"},       {TOP_WAIT, false, false, "", "2130"},
        {TOP_MEM, false, false, "", "3210"},         {TOP_STATE, false, false, "", "3120"},
        {TOP_NAME_COLUMN, false, false, "", "3120"}, {TOP_PID, true, false, "", "3210"},
        {TOP_SHARE, false, true, "", "|310|2"},      {TOP_SHARE, false, false, "TRAIN", "23"},
        {TOP_SHARE, false, false, "#1", "1"},        {TOP_SHARE, false, false, "paused", "3"},
        {TOP_SHARE, false, false, "1002", "2"},      {TOP_SHARE, false, false, "absent", ""},
        {TOP_SHARE, false, true, "train-b", "|3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct top_model m;
        char buf[64];
        start(&m);
        m.sort = all[i].sort;
        m.inverted = all[i].inverted;
        m.grouped = all[i].grouped;
        snprintf(m.filter, sizeof(m.filter), "%s", all[i].filter);
        assert_int_equal(top_model_arrange(&m), 0);
        assert_string_equal(order(&m, buf), all[i].want);
        top_model_free(&m);
    }
}

static void selection_stays_on_its_row(void **state)
{
    struct top_model m;
    start(&m); /* 2 3 1 nobody */
    top_model_select(&m, 1);
    assert_int_equal(top_model_selected(&m)->number, 3);
    top_model_sort(&m, TOP_JOB);
    assert_int_equal(m.at, 2);
    assert_int_equal(top_model_selected(&m)->number, 3);
    top_model_sort(&m, TOP_JOB); /* the other way round */
    assert_int_equal(m.at, 0);
    /* A job before it ends. */
    show(&m, &after[2], 1, 103 * SECOND);
    assert_int_equal(top_model_selected(&m)->number, 3);
    top_model_selected(&m)->tagged = true;
    /* It ends: what comes in its place. */
    show(&m, after, 2, 104 * SECOND);
    assert_int_equal(m.at, 0);
    assert_int_equal(top_model_selected(&m)->number, 2);
    assert_false(top_model_selected(&m)->tagged);
    /* Nobody's are known by pid. */
    top_model_move(&m, 100);
    assert_int_equal(top_model_selected(&m)->pid, 77);
    m.grouped = true;
    top_model_arrange(&m);
    assert_int_equal(top_model_selected(&m)->pid, 77);
    /* Headings are stepped over. */
    top_model_move(&m, -100);
    assert_int_equal(m.at, 1);
    assert_non_null(top_model_selected(&m));
    for (int i = 0; i < 6; i++) {
        top_model_move(&m, i < 3 ? 1 : -1);
        assert_non_null(top_model_selected(&m));
    }
    show(&m, after, 0, 105 * SECOND);
    top_model_free(&m);
}

static void finds_and_scrolls(void **state)
{
    enum { N = 300 };
    static struct fact many[N];
    struct top_model m;
    for (int i = 0; i < N; i++)
        many[i] = (struct fact){
            i + 1, i % 100 == 42 ? "needle" : "job", "batch", "running", 5, 1, 0, 1, 0};
    top_model_init(&m);
    m.sort = TOP_JOB;
    show(&m, many, N, SECOND);
    top_model_height(&m, 7);
    assert_true(top_model_search(&m, "NEEDLE", false));
    assert_int_equal(top_model_selected(&m)->number, 43);
    assert_true(top_model_search(&m, "needle", false)); /* stays */
    assert_int_equal(top_model_selected(&m)->number, 43);
    assert_true(top_model_search(&m, "needle", true));
    assert_int_equal(top_model_selected(&m)->number, 143);
    assert_true(m.first <= m.at && m.at < m.first + 7);
    top_model_search(&m, "needle", true);
    top_model_search(&m, "needle", true); /* from the end to the beginning */
    assert_int_equal(top_model_selected(&m)->number, 43);
    assert_false(top_model_search(&m, "absent", false));
    assert_false(top_model_search(&m, "", false));
    for (long step = -500; step <= 500; step += 37) {
        top_model_move(&m, step);
        assert_true(m.first <= m.at && m.at < m.first + 7 && m.first + 7 <= m.nlines);
    }
    top_model_height(&m, 1000);
    assert_int_equal(m.first, 0);
    top_model_free(&m);
}

static void refuses_what_is_no_job(void **state)
{
    static const char *const replies[] = {
        "{}",
        "{\"jobs\":7,\"gpus\":{}}",
        ("{\"daemon\":true,\"jobs\":[{},{\"number\":-1,\"pid\":1},{\"number\":1,\"pid\":0},"
         "{\"number\":1,\"pid\":99999999999},[],null,3]}"),
    };
    struct top_model m;
    start(&m);
    for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
        json_t *reply = json_loads(replies[i], 0, NULL);
        assert_int_equal(top_model_update(&m, reply, (200 + i) * SECOND), 0);
        assert_int_equal(top_model_arrange(&m), 0);
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
        assert_int_equal(top_model_arrange(&m), 0);
        char line[TOP_LINE], cell[CELL];
        top_gpu_line(line, &m, &m.gpus[0], 80, true);
        for (enum top_column c = 0; c < TOP_COLUMNS; c++)
            top_cell(cell, &m, m.rows[0], c, 10, true);
        json_decref(top_json(&m));
    }
    json_decref(reply);
    top_model_free(&m);
}

/* Over some seconds, since ceded counts once per second; a sum that went back is another ceded's.
 */
static void idle_gpus(void **state)
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
    (void)state;
    struct top_model m;
    top_model_init(&m);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        char line[TOP_LINE];
        json_t *reply = json_pack("{s:b, s:[{s:i, s:s, s:f}]}", "daemon", 1, "gpus", "index", 0,
                                  "label", "soft0", "idle_while_waiting_s", all[i].idle_s);
        assert_int_equal(top_model_update(&m, reply, (uint64_t)all[i].s * SECOND), 0);
        json_decref(reply);
        top_gpu_line(line, &m, &m.gpus[0], 80, false);
        if (!strstr(line, all[i].text))
            fail_msg("no %s in %s", all[i].text, line);
        json_t *o = top_json(&m);
        const json_t *gpu = json_array_get(json_object_get(o, "gpus"), 0);
        assert_true(json_number_value(json_object_get(gpu, "idle_while_waiting_s")) ==
                    all[i].idle_s);
        json_decref(o);
    }
    top_model_free(&m);
}

static void fits_text(void **state)
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

static void columns_fit_any_width(void **state)
{
    struct top_model m;
    start(&m);
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
            assert_true(l.width[TOP_MINUTE] >= 10 && l.width[TOP_WEIGHT] && l.width[TOP_MEM]);
        assert_true(l.width[TOP_JOB] && l.width[TOP_NAME_COLUMN] >= 10);
        assert_int_equal(l.width[TOP_SPEED], 0); /* nobody has one */
    }
    top_model_free(&m);
}

/* A unit that is cut is another one. */
static void due_times_fit(void **state)
{
    static const struct {
        json_int_t in_us;
        const char *want;
    } all[] = {
        {-28900, "late 28.9ms"}, {-999600, "late 1s"}, {-3600000000, "late 3600s"},
        {-999, "late 999us"},    {812000, "in 812ms"},
    };
    struct top_model m;
    start(&m);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        json_t *reply = reply_of(after, ARRAY_SIZE(after));
        json_t *train = json_array_get(json_object_get(reply, "jobs"), 1);
        json_object_set_new(train, "due", json_pack("{s:I}", "in_us", all[i].in_us));
        assert_int_equal(top_model_update(&m, reply, (103 + i) * SECOND), 0);
        assert_int_equal(top_model_arrange(&m), 0);
        json_decref(reply);
        char cell[CELL];
        for (size_t row = 0; row < m.nrows; row++) {
            if (m.rows[row]->number == 2)
                top_cell(cell, &m, m.rows[row], TOP_DUE, 11, true);
        }
        assert_string_equal(cell, all[i].want);
        assert_true(strlen(cell) <= top_layout(&m, 300).width[TOP_DUE]);
    }
    top_model_free(&m);
}

static void names_containers_and_units(void **state)
{
#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const char *const all[][2] = {
        {"/system.slice/docker-" ID ".scope", "docker-0123456789ab"},
        {"/docker/" ID, "0123456789ab"},
        {"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" ID ".scope",
         "cri-containerd-0123456789ab"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_differences),
        cmocka_unit_test(knows_no_share_without_counts),
        cmocka_unit_test(keeps_a_minute),
        cmocka_unit_test(sorts_and_filters),
        cmocka_unit_test(selection_stays_on_its_row),
        cmocka_unit_test(finds_and_scrolls),
        cmocka_unit_test(refuses_what_is_no_job),
        cmocka_unit_test(idle_gpus),
        cmocka_unit_test(fits_text),
        cmocka_unit_test(columns_fit_any_width),
        cmocka_unit_test(due_times_fit),
        cmocka_unit_test(names_containers_and_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
