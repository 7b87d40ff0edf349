/* `cede pause` and `cede resume`: off the GPU and back, memory and state untouched. */
#include <getopt.h>

#include "cli/cli.h"
#include "cli/targets.h"

static int pause_or_resume(int argc, char **argv, const char *verb, const char *help,
                           enum proto_op op)
{
    int status;
    if (!targets_given(argc, argv, verb, help, &status))
        return status;
    const struct request r = {.op = op};
    return targets_do(verb, &r, argv + optind, argc - optind, NULL);
}

int pause_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede pause TARGET...\n"
        "\n"
        "Takes jobs off the GPU, in the middle of a kernel if need be. Their memory stays on the\n"
        "GPU; their processes run on until they next wait for the GPU. TARGET is a pid, a job's\n"
        "number ('#12' or %12) or a job's name; a process that is in no job becomes one.\n"
        "All targets are tried; the exit status is 1 if any failed.\n"
        "\n"
        "  -h, --help  this text\n"
        "\n"
        "  sudo cede pause 4711 train\n"
        "  sudo cede resume 4711 train\n";
    return pause_or_resume(argc, argv, "pause", help, OP_PAUSE);
}

int resume_main(int argc, char **argv)
{
    static const char help[] =
        "usage: cede resume TARGET...\n"
        "\n"
        "Lets paused jobs run again. TARGET is a pid, a job's number ('#12' or %12) or a job's\n"
        "name. All targets are tried; the exit status is 1 if any failed.\n"
        "\n"
        "  -h, --help  this text\n";
    return pause_or_resume(argc, argv, "resume", help, OP_RESUME);
}
