/* The main() of tests that have none; see test.h. */
#include "test.h"

int main(void)
{
    return test_run(NULL, NULL);
}
