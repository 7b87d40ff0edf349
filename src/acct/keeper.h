/* `cede-acct`, a process of its own that keeps the accounts and answers questions about them, so
 * that nothing of SQLite or of a disk can hold up ceded or crash it. It has no rights but its
 * user's: no capabilities, nothing to gain by exec, and where the kernel has Landlock it can write
 * in the state directory only.
 *
 * It is started with two sockets and ends when ceded does, after the last row. A row that it has
 * answered for is on disk; one that it has not is sent again to its successor, and takes its own
 * place. Each question has a process of its own, `cede-acct DIR UID`, which may wait for its asker.
 * Who asks is told by SO_PEERCRED: users see their own rows, administrators all. */
#ifndef CEDE_ACCT_KEEPER_H
#define CEDE_ACCT_KEEPER_H

#define ACCT_LINK_FD   3 /* to ceded; of a process that answers, to the asker */
#define ACCT_LISTEN_FD 4

#define ACCT_SOCKET "accounts" /* in ceded's directory, of SOCK_SEQPACKET */

#define ACCT_EXIT_OFF 3 /* starting it again does not help */

#define ACCT_READERS_MAX      16 /* questions at once; */
#define ACCT_READERS_PER_USER 4

int acct_keeper_main(int argc, char **argv);

#endif
