/* Inside libcede: a handle's connection to the daemon. Only cede_link_set(), and cede_link_check()
 * with a time, ever wait. */
#ifndef CEDE_LIBCEDE_LINK_H
#define CEDE_LIBCEDE_LINK_H

struct cede;

/* Adds the handle to those that a fork takes care of. 0 or -ENOMEM. */
int cede_link_add(struct cede *c);
void cede_link_remove(struct cede *c);

/* Connects if there is no connection, reads what the daemon sent, notices its end. wait_ms: at most
 * so long for a page; 0: does nothing while another thread talks to the daemon. */
void cede_link_check(struct cede *c, int wait_ms);

/* Sends class and weight (-1: leave as it is), now or to the next daemon. 0, -ETIMEDOUT, or the
 * daemon's errno. */
int cede_link_set(struct cede *c, int class, int weight);

#endif
