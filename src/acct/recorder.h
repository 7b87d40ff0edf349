/* `cede-acct`, the recorder: a separate process that writes the accounting records and answers
 * queries, so that neither SQLite nor a disk can block or crash ceded. It has no capabilities and
 * gains none by exec, and where the kernel has Landlock it can write in the state directory only.
 *
 * It is started with two sockets and ends after ceded, when the last row is written. A row that it
 * has confirmed is on disk; others are sent again to its successor, and replace themselves. Each
 * query has a separate process, `cede-acct DIR UID`, which may wait for its client. SO_PEERCRED
 * shows the user: users see their own rows, administrators all. */
#ifndef CEDE_ACCT_RECORDER_H
#define CEDE_ACCT_RECORDER_H

#define ACCT_LINK_FD   3 /* to ceded; in a process for a query, to the client */
#define ACCT_LISTEN_FD 4

#define ACCT_SOCKET "accounts" /* in ceded's directory, of SOCK_SEQPACKET */

#define ACCT_EXIT_OFF 3 /* exit status: starting it again does not help */

#define ACCT_READERS_MAX      16 /* queries at the same time */
#define ACCT_READERS_PER_USER 4

int acct_recorder_main(int argc, char **argv);

#endif
