/* `cede kube-agent`. */
#ifndef CEDE_AGENTS_KUBE_AGENT_H
#define CEDE_AGENTS_KUBE_AGENT_H

/* A verb of `cede`: the exit status. */
int kube_agent_main(int argc, char **argv);

#endif
