/* The main() of tests on a stand-in for the vendor's library: its paths are the arguments. */
#include "nvml_rig.h"

const char *const *libraries;

int main(int argc, char **argv)
{
    libraries = (const char *const *)&argv[1];
    return argc == 4 ? test_run(NULL, NULL) : 2;
}
