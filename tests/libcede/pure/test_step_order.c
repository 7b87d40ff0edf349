/* The order of overlapped steps: a table of what requests see, and at random against a model that
 * keeps everything in plain lists and never uses a place twice. */
#include "../../random.h"
#include "../fixture.h"
#include "base/util.h"
#include "cede/future.h"
#include "libcede/pure/step_order.h"
#include "libcede/pure/times.h"

static struct step_order *order_of(unsigned depth, unsigned batch, unsigned requests)
{
    struct step_order *o = NULL;
    OK(cede_order_new(depth, batch, requests, &o));
    return o;
}

/* Two requests, A and B, at depth 2 or 3. Each letter is one thing that happens; what is seen is
 * checked by the numbers behind it:
 *   b            a step begins
 *   A<s>, B<s>   the request is put into it; s: its symbol, 0, or E: an error
 *   l            it is launched; its block gets the symbol -10, -20, -30, ...
 *   x            it is abandoned
 *   f<ss>        the oldest is finished; of each of its requests, whether it is surplus
 *   e            the same, with an error
 *   L, M         A, B leaves
 *   g<A|B|->     which of them has gone now
 *   r<s>         the block with this symbol is free now; 0: none */
static const char *behave(struct step_order *o, const char *t, const uint64_t id[2], int64_t *block)
{
    void *user = NULL;
    int64_t symbol = 0;
    int reason;
    uint32_t slot;
    const struct order_step *s = cede_order_oldest(o);
    if (*t == 'b')
        cede_order_begin(o);
    if (*t == 'A' || *t == 'B') {
        assert_int_equal(cede_order_add(o, id[*t - 'A'], &symbol) != 0, t[1] == 'E');
        assert_int_equal(-symbol, t[1] == 'E' ? 0 : strtol(t + 1, NULL, 10));
    }
    if (*t == 'l')
        cede_order_launched(o, *block -= 10);
    if (*t == 'x')
        cede_order_abandon(o);
    if (*t == 'L' || *t == 'M') {
        OK(cede_order_leave(o, id[*t - 'L'], 0));
        assert_int_equal(cede_order_leave(o, id[*t - 'L'], 0), -ENOENT);
    }
    if (*t == 'r') {
        cede_order_take_free(o, &symbol);
        assert_int_equal(-symbol, strtol(t + 1, NULL, 10));
    }
    if (*t == 'g') {
        cede_order_take_left(o, &user, &reason, &slot);
        assert_int_equal(user ? *(char *)user : '-', *++t);
    } else if (*t == 'f' || *t == 'e') {
        assert_non_null(s);
        cede_order_finish(o, *t == 'e' ? -EIO : 0);
        for (unsigned k = 0; k < s->n; k++)
            assert_int_equal(s->surplus[k], *++t - '0');
        cede_order_finished(o);
    }
    return t;
}

TEST(behaviours)
{
    static const struct {
        unsigned depth;
        const char *text;
    } rows[] = {
        /* off: nothing is a symbol */
        {1, "b A0 l f0 r10 b A0 l f0 r20 r0"},
        /* a step reads what the one before it has not finished */
        {2, "b A0 l b A10 l f0 r0 b A20 l f0 r10 r0 f0 r20 r30 r0"},
        /* it ended in step 1, while step 2 ran with it */
        {2, "b A0 B0 l b A10 B11 l f00 L g- f10 gA r10 r20 g-"},
        /* the same, three deep: two results are surplus */
        {3, "b A0 l b A10 l b A20 l f0 L g- f1 g- r0 f1 gA r10 r20 r30"},
        /* left while nothing has it */
        {2, "L gA g- b AE B0 l f0 g-"},
        /* left between being scheduled and launched */
        {2, "b A0 B0 L g- l f10 gA"},
        /* a step that was not launched leaves no trace */
        {2, "b A0 x b A0 l b A10 x b A10 l f0 f0 r10 r20"},
        {2, "b A0 L x gA b AE B0 l f0"},
        /* one that skips a step has its symbol still, then its result */
        {3, "b A0 B0 l b B11 l b A10 l f00 b A30 x f0 f0"},
        {2, "b A0 B0 l b B11 l f00 b A0 x f0"},
        /* an error ends the step's requests; what runs already is surplus */
        {2, "b A0 B0 l b A10 l e00 gB g- b AE x f1 gA g-"},
        {2, "b A0 l e0 gA b B0 l f0"},
        /* twice in a step; a step without requests */
        {2, "b A0 AE B0 l b l f00 f r10 r20 r0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct step_order *o = order_of(rows[i].depth, 2, 2);
        char names[] = "AB";
        uint64_t id[2];
        int64_t block = 0;
        print_message("%s\n", rows[i].text);
        for (int k = 0; k < 2; k++)
            OK(cede_order_join(o, &names[k], NULL, TIME_NEVER, &id[k]));
        for (const char *t = rows[i].text; *t; t++) {
            t = behave(o, t, id, &block);
            while (t[1] && t[1] != ' ')
                t++;
            t += t[1] == ' ';
        }
        cede_order_free(o);
    }
}

static int stopped(const struct cede_scope *scope)
{
    return *(const int *)scope;
}

TEST(scopes_and_deadlines)
{
    struct step_order *o = order_of(2, 4, 4);
    int scope = 0, a, b, c, reason;
    uint32_t slot;
    uint64_t id[3], other;
    void *user;
    int64_t symbol;
    cede_order_join(o, &a, (void *)&scope, TIME_NEVER, &id[0]);
    cede_order_join(o, &b, NULL, 100, &id[1]);
    cede_order_join(o, &c, NULL, TIME_NEVER, &id[2]);
    cede_order_begin(o);
    for (int i = 0; i < 3; i++)
        cede_order_add(o, id[i], &symbol);
    cede_order_launched(o, -1);
    cede_order_expire(o, 99, stopped);
    scope = 1;
    cede_order_finish(o, 0);
    assert_memory_equal(cede_order_begin(o)->surplus, "\0\0\0", 3);
    cede_order_finished(o);
    OK(cede_order_add(o, id[0], &symbol));
    cede_order_abandon(o);
    cede_order_expire(o, 100, stopped);
    assert_true(cede_order_take_left(o, &user, &reason, &slot));
    assert_ptr_equal(user, &a);
    assert_int_equal(reason, -ECANCELED);
    assert_true(cede_order_take_left(o, &user, &reason, &slot));
    assert_ptr_equal(user, &b);
    assert_int_equal(reason, -ETIMEDOUT);
    assert_false(cede_order_take_left(o, &user, &reason, &slot));
    /* the place is another's, the id is not */
    for (int i = 0; i < 3; i++)
        OK(cede_order_join(o, &b, NULL, TIME_NEVER, &other));
    assert_int_equal(cede_order_join(o, &b, NULL, TIME_NEVER, &other), -ENOSPC);
    assert_int_equal(cede_order_leave(o, id[0], 0), -ENOENT);
    cede_order_leave_all(o, -EINTR);
    for (unsigned i = 4; i-- > 0;) {
        assert_true(cede_order_take_left(o, &user, &reason, &slot));
        assert_int_equal(reason, -EINTR);
        assert_int_equal(cede_order_requests(o), i);
    }
    cede_order_free(o);
}

/* ---- against a model ------------------------------------------------------------------------- */

#define REQUESTS 12U
#define BATCH    5U
#define JOINS    400U
#define STEPS    600U

struct model_request {
    uint64_t id;
    bool joined, left, gone;
    int reason;
    uint32_t slot;
    unsigned latest, index; /* step, 0: none */
};

struct model_step {
    unsigned n, request[BATCH];
    int64_t symbol;
    unsigned readers_to; /* last step launched when it was finished */
    bool finished, freed;
};

struct model {
    struct model_request requests[JOINS];
    struct model_step steps[STEPS + 1];
    unsigned joins, present, launched, finished;
};

/* Of a request that has left and that is in no unfinished step, its end is told, once and now. */
static void check_left(struct model *m, struct step_order *o)
{
    void *user;
    int reason;
    uint32_t slot;
    unsigned want = 0, got = 0;
    for (unsigned i = 0; i < m->joins; i++) {
        struct model_request *r = &m->requests[i];
        bool in = false;
        for (unsigned s = m->finished + 1; s <= m->launched; s++)
            for (unsigned k = 0; k < m->steps[s].n; k++)
                in |= m->steps[s].request[k] == i;
        want += r->left && !r->gone && !in;
    }
    for (; cede_order_take_left(o, &user, &reason, &slot); got++) {
        struct model_request *r = user;
        assert_true(r->left && !r->gone);
        assert_int_equal(reason, r->reason);
        r->gone = true;
        m->present--;
    }
    assert_int_equal(got, want);
    assert_int_equal(cede_order_requests(o), m->present);
}

static void do_begin(struct model *m, struct step_order *o)
{
    struct model_step *s = &m->steps[m->launched + 1];
    cede_order_begin(o);
    s->n = 0;
    for (unsigned i = 0; i < m->joins; i++) {
        struct model_request *r = &m->requests[i];
        int64_t symbol = 0, want = 0;
        if (r->gone || rnd(3) == 0)
            continue;
        int code = cede_order_add(o, r->id, &symbol);
        assert_int_equal(code, r->left ? -ENOENT : s->n == BATCH ? -ENOSPC : 0);
        if (code)
            continue;
        if (r->latest > m->finished)
            want = cede_future_symbol(m->steps[r->latest].symbol, r->index);
        assert_int_equal(symbol, want);
        assert_int_equal(cede_order_add(o, r->id, &symbol), -EALREADY);
        s->request[s->n++] = i;
    }
    if (rnd(8) == 0) {
        cede_order_abandon(o);
        return;
    }
    m->launched++;
    s->symbol = -(int64_t)m->launched * 100;
    for (unsigned k = 0; k < s->n; k++) {
        m->requests[s->request[k]].latest = m->launched;
        m->requests[s->request[k]].index = k;
    }
    cede_order_launched(o, s->symbol);
}

static void do_finish(struct model *m, struct step_order *o)
{
    struct model_step *s = &m->steps[++m->finished];
    const struct order_step *got = cede_order_oldest(o);
    int error = rnd(10) == 0 ? -EIO : 0;
    int64_t symbol;
    s->finished = true;
    s->readers_to = m->launched;
    assert_int_equal(got->number, m->finished);
    assert_int_equal(got->n, s->n);
    cede_order_finish(o, error);
    for (unsigned k = 0; k < s->n; k++) {
        struct model_request *r = &m->requests[s->request[k]];
        assert_ptr_equal(got->user[k], r);
        assert_int_equal(got->surplus[k], r->left);
        if (error && !r->left) {
            r->left = true;
            r->reason = error;
        }
    }
    for (unsigned i = 1; i <= m->finished; i++) {
        if (m->steps[i].freed || m->steps[i].readers_to > m->finished)
            continue;
        assert_true(cede_order_take_free(o, &symbol));
        assert_int_equal(symbol, m->steps[i].symbol);
        m->steps[i].freed = true;
    }
    assert_false(cede_order_take_free(o, &symbol));
    cede_order_finished(o);
}

static void do_join_or_leave(struct model *m, struct step_order *o)
{
    struct model_request *r = &m->requests[m->joins];
    if (rnd(2) && m->joins < JOINS) {
        int code = cede_order_join(o, r, NULL, TIME_NEVER, &r->id);
        assert_int_equal(code, m->present < REQUESTS ? 0 : -ENOSPC);
        m->joins += code == 0;
        m->present += code == 0;
    } else if (m->joins) {
        unsigned back = (unsigned)rnd(min_u64(m->joins, 2 * REQUESTS));
        r = &m->requests[m->joins - 1 - back];
        int reason = -(int)rnd(100);
        assert_int_equal(cede_order_leave(o, r->id, reason), r->left ? -ENOENT : 0);
        r->reason = r->left ? r->reason : reason;
        r->left = true;
    }
}

TEST(at_random)
{
    static struct model m;
    for (unsigned run = 0; run < 60; run++) {
        unsigned depth = 1 + run % 4, deepest = 0;
        struct step_order *o = order_of(depth, BATCH, REQUESTS);
        memset(&m, 0, sizeof(m));
        state = run;
        while (m.launched < STEPS) {
            uint64_t what = rnd(4);
            if (what < 2)
                do_join_or_leave(&m, o);
            else if (what == 2 && m.launched - m.finished < depth)
                do_begin(&m, o);
            else if (what == 3 && m.launched > m.finished)
                do_finish(&m, o);
            check_left(&m, o);
            assert_int_equal(cede_order_running(o), m.launched - m.finished);
            deepest = m.launched - m.finished > deepest ? m.launched - m.finished : deepest;
        }
        while (m.launched > m.finished)
            do_finish(&m, o);
        assert_null(cede_order_oldest(o));
        assert_int_equal(deepest, depth);
        assert_true(m.steps[m.finished].freed && m.joins > 100);
        cede_order_free(o);
    }
}
