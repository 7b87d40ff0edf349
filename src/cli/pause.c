/* `cede pause` and `cede resume`: take jobs off the GPU and let them run again. */
#include "cli/cli.h"
#include "cli/targets.h"

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
        "  cede pause 4711 train\n"
        "  cede resume 4711 train\n";
    return targets_verb(argc, argv, "pause", help, &(struct request){.op = OP_PAUSE}, NULL);
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
    return targets_verb(argc, argv, "resume", help, &(struct request){.op = OP_RESUME}, NULL);
}
