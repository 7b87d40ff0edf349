/* The cells of `cede ps`. */
#ifndef CEDE_CLI_CELLS_H
#define CEDE_CLI_CELLS_H

#include <jansson.h>
#include <stdbool.h>

enum {
    JOB,
    PID,
    CLASS,
    WEIGHT,
    LIMITS,
    BUDGET,
    STATE,
    GPU,
    LEVEL,
    SLICE,
    BUSY,
    SPEED,
    MEM,
    USER,
    NAME,
    COLUMNS
};
#define CELL 160

/* Single ones: a time; GPU memory and speed of a job; its GPUs. Empty ones are "-". */
void cell_time(char buf[static CELL], json_int_t us);
void cell_memory(char buf[static CELL], const json_t *job);
void cell_speed(char buf[static CELL], const json_t *job);
void cell_gpus(char buf[static CELL], const json_t *job, const json_t *devices, bool labels);

/* Whether a device of the daemon's answer has a capability, by its name there. */
bool cell_has_cap(const json_t *devices, json_int_t gpu, const char *cap);

/* A job, or a program in no job: what that does not have is "-". devices: of the daemon's answer;
 * labels: they are called by these instead of their indices. */
void cells_of(const json_t *job, const json_t *devices, bool labels, char cell[COLUMNS][CELL]);

#endif
