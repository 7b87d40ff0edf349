/* cede-identify reads facts about a process that may take long to read. A program's arguments and
 * environment are read under the lock of its address space, which it can hold for as long as it
 * likes, and a runtime's files may be on a disk that hangs. So a separate child looks at each
 * process and is killed after IDENTIFY_S, and ceded goes on meanwhile without an answer.
 *
 * Programs are not trusted: what one says of itself counts as its claim, and is bounded. Changes
 * nothing. */
#ifndef CEDE_WHO_IDENTIFY_H
#define CEDE_WHO_IDENTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pairs.h"
#include "who/procfs.h"

#define IDENTIFY_LINK_FD  3 /* a SEQPACKET socket: one struct identify_ask per message */
#define IDENTIFY_S        10
#define IDENTIFY_WANTED   8192  /* bytes of names */
#define IDENTIFY_TEXT     32768 /* bytes of answers */
#define IDENTIFY_CHILDREN 64    /* more are refused, as when a disk hangs and none of them ends */

/* Names of facts: "arguments", "environment:NAME" and, for a container, "container_name", "image",
 * "pod" and "namespace". */
#define IDENTIFY_ARGUMENTS   "arguments"
#define IDENTIFY_ENVIRONMENT "environment:"
#define IDENTIFY_WORDS       "environment:CEDE_" /* words for cede, inherited as niceness is */

struct identify_ask {
    uint64_t id;
    struct proc_id proc;
    char container[72]; /* the container's id; "": the process is in none */
    uint32_t n;
    char wanted[IDENTIFY_WANTED]; /* pairs with empty values; a message ends after n bytes */
};

/* Where a program's words for cede come from. */
struct identify_origin {
    struct proc_id speaker; /* the process whose words they are: itself, an ancestor, or the first
                               process of its container */
    bool overwritten;       /* the program has written over its environment */
};

struct identify_answer {
    uint64_t id;
    int32_t code; /* of reading arguments and environment: 0, or -errno */
    uint32_t n;
    struct proc_image image; /* the program that was running then */
    struct identify_origin origin;
    char text[IDENTIFY_TEXT];
};

int identify_main(int argc, char **argv);

#endif
