/* Collectives by dice: any root, any lengths, blocking and not, in place and not. What each process must hold afterwards is computed
 * before the call. */
#include "calls.h"
#include <string.h>

#define GUARD (-9)

int *ints(int count) {
    int *memory = lend(sizeof(int) * (size_t)(count + 1));
    for (int i = 0; i <= count; i++)
        memory[i] = GUARD;
    return memory;
}

static void buffers(struct call *call, int out, int in, const char *what) {
    call->out = ints(out);
    call->in = ints(in);
    call->want = ints(in);
    call->in_ints = in;
    call->work = start_work(what);
}

/* What lies in the buffer before the call stays where nothing arrives. */
static void watch(struct call *call) {
    call->work->got = (unsigned char *)call->in;
    call->work->want = (const unsigned char *)call->want;
    call->work->bytes = sizeof(int) * (size_t)call->in_ints;
}

int length(const struct call *call, int from, int to) {
    return cell(call->salt, from + 500, to, 1) % (call->count + 1);
}

static int *lengths(const struct call *call, int from, int to) {
    int *list = ints(call->n);
    for (int rank = 0; rank < call->n; rank++)
        list[rank] = from < 0 ? length(call, rank, to) : length(call, from, rank);
    return list;
}

static int *places(const struct call *call, const int *counts, int *end) {
    int *list = ints(call->n);
    *end = 0;
    for (int rank = 0; rank < call->n; rank++) {
        list[rank] = *end;
        *end += counts[rank] + (int)(call->salt % 3);
    }
    return list;
}

static void barrier(struct call *call) {
    buffers(call, 0, 0, "barrier");
    if (call->is_blocking)
        MPI_Barrier(COMM);
    else
        MPI_Ibarrier(COMM, REQUEST);
}

static void bcast(struct call *call) {
    buffers(call, 0, call->count, "bcast");
    for (int i = 0; i < call->count; i++) {
        call->want[i] = cell(call->salt, call->root, 0, i);
        if (call->me == call->root)
            call->in[i] = call->want[i];
    }
    watch(call);
    if (call->is_blocking)
        MPI_Bcast(call->in, call->count, MPI_INT, call->root, COMM);
    else
        MPI_Ibcast(call->in, call->count, MPI_INT, call->root, COMM, REQUEST);
}

/* To the root or to all, equal lengths. */
static void gather(struct call *call, int to_all) {
    int gets = to_all || call->me == call->root, count = call->count;
    int is_in_place = call->is_in_place && gets;
    buffers(call, count, gets ? call->n * count : 0, to_all ? "allgather" : "gather");
    for (int i = 0; i < count; i++)
        call->out[i] = cell(call->salt, call->me, 0, i);
    for (int i = 0; gets && i < call->n * count; i++)
        call->want[i] = cell(call->salt, i / count, 0, i % count);
    if (is_in_place)
        memcpy(call->in + call->me * count, call->out, sizeof(int) * (size_t)count);
    watch(call);
    /* In place is for all members of an allgather or for none. */
    const void *out = is_in_place ? MPI_IN_PLACE : call->out;
    if (to_all && call->is_blocking)
        MPI_Allgather(out, count, MPI_INT, call->in, count, MPI_INT, COMM);
    else if (to_all)
        MPI_Iallgather(out, count, MPI_INT, call->in, count, MPI_INT, COMM, REQUEST);
    else if (call->is_blocking)
        MPI_Gather(out, count, MPI_INT, call->in, count, MPI_INT, call->root, COMM);
    else
        MPI_Igather(out, count, MPI_INT, call->in, count, MPI_INT, call->root, COMM, REQUEST);
}

static void gatherv(struct call *call, int to_all) {
    int gets = to_all || call->me == call->root, end, mine = length(call, call->me, 0);
    int *counts = lengths(call, -1, 0), *at = places(call, counts, &end);
    buffers(call, mine, gets ? end : 0, to_all ? "allgatherv" : "gatherv");
    for (int i = 0; i < mine; i++)
        call->out[i] = cell(call->salt, call->me, 0, i);
    for (int rank = 0; gets && rank < call->n; rank++)
        for (int i = 0; i < counts[rank]; i++)
            call->want[at[rank] + i] = cell(call->salt, rank, 0, i);
    watch(call);
    if (to_all && call->is_blocking)
        MPI_Allgatherv(call->out, mine, MPI_INT, call->in, counts, at, MPI_INT, COMM);
    else if (to_all)
        MPI_Iallgatherv(call->out, mine, MPI_INT, call->in, counts, at, MPI_INT, COMM, REQUEST);
    else if (call->is_blocking)
        MPI_Gatherv(call->out, mine, MPI_INT, call->in, counts, at, MPI_INT, call->root, COMM);
    else
        MPI_Igatherv(call->out, mine, MPI_INT, call->in, counts, at, MPI_INT, call->root, COMM, REQUEST);
}

static void scatter(struct call *call, int has_lengths) {
    int end, gives = call->me == call->root, mine = has_lengths ? length(call, 0, call->me) : call->count;
    int *counts = lengths(call, 0, 0), *at = places(call, counts, &end);
    if (!has_lengths)
        end = call->n * call->count;
    buffers(call, gives ? end : 0, mine, has_lengths ? "scatterv" : "scatter");
    for (int rank = 0; gives && rank < call->n; rank++)
        for (int i = 0; i < (has_lengths ? counts[rank] : call->count); i++)
            call->out[(has_lengths ? at[rank] : rank * call->count) + i] = cell(call->salt, call->root, rank, i);
    for (int i = 0; i < mine; i++)
        call->want[i] = cell(call->salt, call->root, call->me, i);
    watch(call);
    if (has_lengths && call->is_blocking)
        MPI_Scatterv(call->out, counts, at, MPI_INT, call->in, mine, MPI_INT, call->root, COMM);
    else if (has_lengths)
        MPI_Iscatterv(call->out, counts, at, MPI_INT, call->in, mine, MPI_INT, call->root, COMM, REQUEST);
    else if (call->is_blocking)
        MPI_Scatter(call->out, mine, MPI_INT, call->in, mine, MPI_INT, call->root, COMM);
    else
        MPI_Iscatter(call->out, mine, MPI_INT, call->in, mine, MPI_INT, call->root, COMM, REQUEST);
}

/* `form`: 0 equal lengths, 1 lengths for each pair, 2 also datatypes for each pair. */
static void alltoall(struct call *call, int form) {
    int out_end, in_end, n = call->n, count = call->count;
    int *gives = lengths(call, call->me, 0), *gets = lengths(call, -1, call->me);
    for (int rank = 0; rank < n && form == 0; rank++)
        gives[rank] = gets[rank] = count;
    int *from = places(call, gives, &out_end), *to = places(call, gets, &in_end);
    for (int rank = 0; rank < n && form == 0; rank++)
        from[rank] = to[rank] = rank * count;
    buffers(call, form ? out_end : n * count, form ? in_end : n * count, form == 2 ? "alltoallw" : form ? "alltoallv" : "alltoall");
    int is_in_place = call->is_in_place && form == 0;
    for (int rank = 0; rank < n; rank++) {
        for (int i = 0; i < gives[rank]; i++)
            (is_in_place ? call->in : call->out)[from[rank] + i] = cell(call->salt, call->me, rank, i);
        for (int i = 0; i < gets[rank]; i++)
            call->want[to[rank] + i] = cell(call->salt, rank, call->me, i);
    }
    watch(call);
    const void *out = is_in_place ? MPI_IN_PLACE : call->out;
    if (form == 2) {
        MPI_Datatype *types = lend(sizeof(MPI_Datatype) * (size_t)n);
        for (int rank = 0; rank < n; rank++) {
            types[rank] = MPI_INT;
            from[rank] *= (int)sizeof(int), to[rank] *= (int)sizeof(int);
        }
        if (call->is_blocking)
            MPI_Alltoallw(call->out, gives, from, types, call->in, gets, to, types, COMM);
        else
            MPI_Ialltoallw(call->out, gives, from, types, call->in, gets, to, types, COMM, REQUEST);
    } else if (form == 1 && call->is_blocking)
        MPI_Alltoallv(call->out, gives, from, MPI_INT, call->in, gets, to, MPI_INT, COMM);
    else if (form == 1)
        MPI_Ialltoallv(call->out, gives, from, MPI_INT, call->in, gets, to, MPI_INT, COMM, REQUEST);
    else if (call->is_blocking)
        MPI_Alltoall(out, count, MPI_INT, call->in, count, MPI_INT, COMM);
    else
        MPI_Ialltoall(out, count, MPI_INT, call->in, count, MPI_INT, COMM, REQUEST);
}

void collective(const struct group *group, struct dice *dice, uint64_t salt) {
    struct call *call = lend(sizeof *call);
    memset(call, 0, sizeof *call);
    int size = below(dice, 12);
    call->group = group;
    call->salt = salt;
    call->n = group->size;
    call->me = group->rank;
    call->root = below(dice, group->size);
    call->count = size == 0 ? below(dice, 30000) : size < 3 ? below(dice, 1500) : below(dice, 20);
    call->is_blocking = below(dice, 2);
    call->is_in_place = below(dice, 4) == 0;
    switch (below(dice, 16)) {
    case 0: barrier(call); break;
    case 1: bcast(call); break;
    case 2: gather(call, 0); break;
    case 3: gather(call, 1); break;
    case 4: gatherv(call, 0); break;
    case 5: gatherv(call, 1); break;
    case 6: scatter(call, 0); break;
    case 7: scatter(call, 1); break;
    case 8: alltoall(call, 0); break;
    case 9: alltoall(call, 1); break;
    case 10: alltoall(call, 2); break;
    default: reduction(call, dice, below(dice, 6));
    }
}
