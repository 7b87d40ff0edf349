/* cede-identify: reads about a process what may take long. A program's arguments and environment
 * are read under the lock of its address space, which it can hold for as long as it likes; a
 * runtime's files may be on a disk that hangs. So each process is looked at by a child of its own,
 * which is killed after IDENTIFY_S, and ceded goes on meanwhile without an answer.
 *
 * Trusts no program: what it says of itself is its own word, and is bounded. Changes nothing. */
#ifndef CEDE_IDENTIFY_IDENTIFY_H
#define CEDE_IDENTIFY_IDENTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/pairs.h"
#include "lib/procfs.h"

#define IDENTIFY_LINK_FD  3 /* a SEQPACKET socket: one struct identify_ask a message */
#define IDENTIFY_S        10
#define IDENTIFY_WANTED   8192  /* bytes of names */
#define IDENTIFY_TEXT     32768 /* bytes of answers */
#define IDENTIFY_CHILDREN 64    /* more are refused: a disk hangs, and none of them ends */

/* Names that may be wanted: "arguments", "environment:NAME", and of a container
 * "container_name", "image", "pod" and "namespace". */
#define IDENTIFY_ARGUMENTS   "arguments"
#define IDENTIFY_ENVIRONMENT "environment:"
#define IDENTIFY_WORDS       "environment:CEDE_" /* for cede: inherited as niceness is */

struct identify_ask {
    uint64_t id;
    struct proc_id proc;
    char container[72]; /* its id; "": it is in none */
    uint32_t n;
    char wanted[IDENTIFY_WANTED]; /* pairs with empty values; a message ends after n bytes */
};

/* Of a program's words for cede. */
struct identify_origin {
    struct proc_id speaker; /* the first that said them: itself, an ancestor, or the first process
                               of its container */
    bool overwritten;       /* it has written over its environment */
};

struct identify_answer {
    uint64_t id;
    int32_t code; /* of its own words: 0, or -errno */
    uint32_t n;
    struct proc_image image; /* the program that was running */
    struct identify_origin origin;
    char text[IDENTIFY_TEXT];
};

int identify_main(int argc, char **argv);

/* ---- the two halves ---- */

/* Arguments and variables of this very program, before exec(2) makes it another. Words for cede
 * that it lacks, and all variables if it has written over its environment, are those of its nearest
 * ancestor that has them, or else of the first process of its container; of root's and the same
 * user's. -ESRCH, -EACCES; -EAGAIN: it calls exec(2) again and again. */
int words_read(struct proc_id id, const char *container, struct pairs wanted,
               struct identify_answer *out);

/* Facts from the files of containerd, CRI-O, Podman and Docker below root ("": the machine's). What
 * is not there, not root's or no JSON says nothing. */
void container_read(const char *root, const char *id, struct pairs wanted,
                    struct identify_answer *out);
/* The parsers, for text from anywhere: an OCI config.json, Docker's config.v2.json, and the list
 * of containers/storage, in which this one is looked for. */
void container_oci(const char *text, size_t n, struct pairs wanted, struct identify_answer *out);
void container_docker(const char *text, size_t n, struct pairs wanted, struct identify_answer *out);
void container_list(const char *text, size_t n, const char *id, struct pairs wanted,
                    struct identify_answer *out);

#endif
