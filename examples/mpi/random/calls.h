/* One collective call, shared by collectives.c and reductions.c. */
#ifndef CALLS_H
#define CALLS_H

#include "random.h"

/* One call: what it is made of. Counts are known to all. */
struct call {
    const struct group *group;
    uint64_t salt;
    int n, me, root, count;
    int is_blocking, is_in_place;
    struct work *work;
    int *out, *in, *want;
    int in_ints;
};

/* So many ints, none of them a value of the program. */
int *ints(int count);
/* Lengths for each pair; those of all pairs are known to all. */
int length(const struct call *call, int from, int to);
/* `form`: 0 reduce, 1 allreduce, 2 scan, 3 exscan, 4 reduce_scatter_block, 5 reduce_scatter. */
void reduction(struct call *call, struct dice *dice, int form);

#define COMM call->group->comm
#define REQUEST &call->work->request

#endif
