/* The terms of a job (struct job_terms), one row each: how they are written in messages, by people
 * and in replies, their range for each class, and the rights to set them. A new term is a member of
 * struct job_terms and a row here; its effect is in the files that use the member. No I/O. */
#ifndef CEDE_API_JOB_TERMS_H
#define CEDE_API_JOB_TERMS_H

#include "api/proto.h"

/* A whole number in messages; people write it with a unit. */
struct number {
    enum { NUMBER_PLAIN, NUMBER_TIME, NUMBER_BYTES, NUMBER_MIB, NUMBER_PERCENT } unit;
    int64_t lo, hi;
    int64_t least;       /* the least value besides 0, which means none */
    const char *allowed; /* in messages for people: "a percentage from 1% to 100%" */
};
/* 0, or -EINVAL with what the field must be. */
int number_get(const struct number *n, const char *field, const json_t *v, uint64_t *out,
               struct error *err);
/* 0, or a negative errno if the text is not what is allowed. */
int number_read(const struct number *n, const char *text, uint64_t *out);

/* Bit maps of classes. */
#define OF_CLASS(c)    (1U << CLASS_##c)
#define OF_ALL_CLASSES (OF_CLASS(LATENCY) | OF_CLASS(NORMAL) | OF_CLASS(BATCH))

struct term {
    const char *key;  /* in messages and in the JSON of a job */
    const char *word; /* option, or key of the configuration; NULL: a part of the one before */
    char letter;      /* option; 0: none */
    size_t at;        /* in struct job_terms */
    struct number number;
    const char *(*name)(uint32_t value); /* the word for a value; NULL past the last, or no words */
    bool always;                         /* the JSON of a job has it even if it is 0 */
    const char *said;                    /* format of value / per, for `cede set`; NULL: nothing */
    double per;
    uint32_t classes;      /* classes that can have it; a job that leaves them loses it */
    const char *elsewhere; /* the error in other classes, a format of the class name */
    bool stays;            /* in other classes it is kept, without effect */
    /* For rights.c. Users may only lower it, or only raise it (rises), in these classes. none: what
     * 0 counts as. refusal: the error, a format of the present and the wanted value. */
    uint32_t guarded;
    bool rises;
    enum { NONE_IS_LEAST, NONE_IS_MOST, NONE_IS_DEFAULT } none;
    const char *refusal;
};
const struct term *term_at(unsigned i); /* NULL: past the last */
const struct term *term_of_key(const char *key);
const struct term *term_of_word(const char *word); /* the configuration has _ for - */
uint32_t term_get(const struct job_terms *terms, const struct term *t);

/* Sets a term of the request from a message, or from a person's text for `word`. -EINVAL. */
int term_get_json(const struct term *t, const json_t *v, struct request *out, struct error *err);
int term_read(const struct term *t, const char *word, const char *text, struct request *out,
              struct error *err);
/* NULL: no memory. */
json_t *term_json(const struct term *t, uint32_t value);
/* Adds the terms of a request to its message. 0 or -1. */
int terms_put_json(json_t *o, const struct request *r);
/* The names of a set, "class, weight, budget_us"; returns buf. words: as people write them. */
const char *terms_names(uint32_t set, bool words, char *buf, size_t size);

/* The terms of a new job for which none are given. */
extern const struct job_terms terms_default;
/* -EINVAL: terms that exclude each other, or that a job of this class cannot have (CLASS_COUNT: the
 * class is not known yet). */
int terms_check(const struct request *r, enum job_class class, struct error *err);
/* The terms of a job with terms `now` after a checked request. admin: of an administrator. */
struct job_terms terms_after(const struct request *r, const struct job_terms *now, bool admin);
/* -EINVAL: a floor above the ceiling. */
int terms_limits(const struct job_terms *t, struct error *err);

#endif
