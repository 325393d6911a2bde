/* What the parts of the random program share. All processes roll the same dice, so that each of them knows what every other one
 * does and what must arrive; nothing is asked of the library under test to find that out. */
#ifndef RANDOM_H
#define RANDOM_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* A sequence of numbers that depends on its seed alone (splitmix64). */
struct dice {
    uint64_t state;
};

struct dice dice_of(uint64_t a, uint64_t b, uint64_t c);
uint64_t roll(struct dice *dice);
/* 0 .. n-1 */
int below(struct dice *dice, int n);
/* The number that `from` sends to `to` at position `i`: anything, the same for everybody. */
int cell(uint64_t salt, int from, int to, int i);

/* One communicator of each process, made by one call of all of them; MPI_COMM_NULL where a process was left out. */
struct group {
    MPI_Comm comm;
    int size;
    int rank;
    /* Ranks in MPI_COMM_WORLD. */
    int *members;
};

#define GROUPS 5
extern struct group groups[GROUPS];
extern int world_rank, world_size;

/* Something under way: when the request is done (at once for MPI_REQUEST_NULL), `got` must be like `want`. */
struct work {
    MPI_Request request;
    unsigned char *got;
    const unsigned char *want;
    size_t bytes;
    /* For messages: checked instead of the bytes. */
    void (*finish)(struct work *work, const MPI_Status *status);
    void *more;
    const char *what;
};

struct work *start_work(const char *what);
/* Waits for all that was started, in an order and by calls that the process chooses for itself, and checks it. */
void finish_works(struct dice *own);
/* Memory that lasts until all works are finished. */
void *lend(size_t bytes);
/* Ends the job with the seed, the step and what was found. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* A datatype of `count` ints, and the places (in ints) of each from the start of the buffer. */
struct layout {
    MPI_Datatype type;
    int count;
    int *places;
    /* Ints that the buffer must have. */
    int extent;
    int is_made;
};

struct layout random_layout(struct dice *dice, int count);
void free_layout(struct layout *layout);

void exchange_messages(const struct group *group, struct dice *dice, uint64_t salt);
void collective(const struct group *group, struct dice *dice, uint64_t salt);
/* Frees the communicator in `slot` and makes another one out of that in `parent`. */
void remake(int slot, int parent, struct dice *dice);
void adopt(struct group *group, MPI_Comm comm);

#endif
