/* What job a request or a rule makes of a process: its terms, name, account and launch. */
#ifndef CEDE_API_RULES_JOB_SPEC_H
#define CEDE_API_RULES_JOB_SPEC_H

#include "api/rules/rules.h"

/* Sets the account of a process's job: the first that matches, else that of its user (spec->uid). l
 * may be NULL. */
void rules_account(const struct rule_list *l, pid_t pid, struct job_spec *spec);

/* The job that a request makes of this process. */
struct job_spec request_spec(const struct request *r, const char *comm, pid_t pid, bool admin);

/* Replaces the engine's named accounts by those of the configuration, and tells the rules how much
 * memory its GPUs have. */
void rules_use_engine(struct rule_list *l, struct engine *e);

/* A rule_fn; arg is a struct rule_list that outlives the engine. */
int rules_fn(void *arg, pid_t pid, struct job_spec *spec);

/* Makes a valid job name (proto_name_ok()) of comm. */
void rules_job_name(char name[static JOB_NAME_MAX], const char *comm, pid_t pid);

#endif
