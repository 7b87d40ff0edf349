/* The software GPU as a program: runs the engine in real time for client processes. */
#ifndef CEDE_SOFTGPU_SERVER_H
#define CEDE_SOFTGPU_SERVER_H

/* `cede-softgpu [--socket PATH] [--gpus N] ...`; returns the exit status. */
int soft_server_main(int argc, char **argv);

#endif
