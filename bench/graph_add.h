/* graph_add.ptx as a text. */
#ifndef CEDE_BENCH_GRAPH_ADD_H
#define CEDE_BENCH_GRAPH_ADD_H

extern const char graph_add_ptx[];

#endif
