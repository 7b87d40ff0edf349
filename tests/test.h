/* What a test in C begins with. TEST() defines one and adds it to those that run, in the order of
 * the file; who needs nothing else before and after all of them needs no main(). */
#ifndef CEDE_TESTS_TEST_H
#define CEDE_TESTS_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A test with set-up and tear-down, as of struct CMUnitTest; *fixture is what set_up() left in
 * *state. */
#define TEST_WITH(name, set_up, tear_down)                                                         \
    static void name(void **fixture);                                                              \
    __attribute__((constructor)) static void test_add_##name(void)                                 \
    {                                                                                              \
        test_add(&(const struct CMUnitTest){#name, name, set_up, tear_down, NULL});                \
    }                                                                                              \
    static void name(void **fixture)
#define TEST(name) TEST_WITH(name, NULL, NULL)
/* Such a test that has what set_up() left as a parameter: TEST_IN(name, struct env *e, ...). */
#define TEST_IN(name, parameter, set_up, tear_down)                                                \
    static void name##_in(parameter);                                                              \
    TEST_WITH(name, set_up, tear_down)                                                             \
    {                                                                                              \
        name##_in(*fixture);                                                                       \
    }                                                                                              \
    static void name##_in(parameter)

void test_add(const struct CMUnitTest *test);
/* Those that were added. */
const struct CMUnitTest *test_list(size_t *n);
/* Runs them, with set-up and tear-down of them all or NULL; returns how many failed. FILTER in the
 * environment is a pattern of names: only those run. */
int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down);
/* Skips the test unless it is root's and a user can have a user namespace, which in a chroot nobody
 * can. */
void needs_user_namespaces(void);

#endif
