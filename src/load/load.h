/* cede-load: the workload generator that demo, doctor, tests and benches share. */
#ifndef CEDE_LOAD_LOAD_H
#define CEDE_LOAD_LOAD_H

/* `cede-load ROLE [options]`; returns the exit status. */
int load_main(int argc, char **argv);

#endif
