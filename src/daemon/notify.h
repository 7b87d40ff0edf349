/* Messages to the service manager: the sd_notify(3) protocol. Keeps no state of its own. */
#ifndef CEDE_DAEMON_NOTIFY_H
#define CEDE_DAEMON_NOTIFY_H

/* "READY=1\nSTATUS=...". 0: sent, or no service manager asked for it; or -errno. */
int notify_send(const char *state);

#endif
