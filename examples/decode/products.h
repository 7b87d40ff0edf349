/* Matrix products by cuBLASLt, which is opened at run time, in place of the own kernel.
 *
 * A library chooses its algorithm by the shape, and so the order in which it sums up: a row may get
 * other results in a batch of another size. With `fixed` it never sees another size: each product
 * is computed for all rows of the largest batch, by one algorithm, which was seen to give equal
 * rows equal results wherever they stand. Without, each size has the algorithm that the library
 * suggests for it. */
#ifndef DECODE_PRODUCTS_H
#define DECODE_PRODUCTS_H

#include "model.h"

struct products;

/* For a model with wide weights. file: of the library; NULL: libcublasLt.so.13 or .12, where the
 * loader finds it. Compares each product with the own kernel's first. NULL: it is said what is
 * missing, or differs. Sets the model's `product`. */
struct products *products_open(struct model *m, const char *file, bool fixed);
/* NULL is allowed. Before the model is closed. */
void products_close(struct products *p);
/* The largest difference from the own kernel's numbers that was seen, in parts of their size. */
double products_difference(const struct products *p);

#endif
