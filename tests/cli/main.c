/* The main() of tests of verbs that have none: all of them in one directory. */
#include "harness.h"

int main(void)
{
    return test_run(harness_begin, harness_end);
}
