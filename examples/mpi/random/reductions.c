/* Reductions by dice: operations of the standard on several types, and one of the program that does not commute. The values are such
 * that every order of the additions has the same result, so that it can be compared bit by bit. */
#include "calls.h"
#include <string.h>

#define PRIME 9973

struct pair {
    int a, b;
};

enum kind { SUM, MAX, MIN, BXOR, LAND, LONG_SUM, LONG_MAX, DOUBLE_SUM, DOUBLE_MIN, MAXLOC, MINLOC, COMPOSED, KINDS };

static size_t bytes_of(enum kind kind) {
    return kind <= LAND ? sizeof(int) : 8;
}

/* First `in`, then `inout`: x -> in.a x + in.b, and so on. */
static void compose(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    struct pair *first = in, *then = inout;
    for (int i = 0; i < *count; i++) {
        then[i].b = (first[i].b * then[i].a + then[i].b) % PRIME;
        then[i].a = first[i].a * then[i].a % PRIME;
    }
}

static MPI_Datatype type_of(enum kind kind) {
    static MPI_Datatype pairs = MPI_DATATYPE_NULL;
    switch (kind) {
    case LONG_SUM:
    case LONG_MAX: return MPI_INT64_T;
    case DOUBLE_SUM:
    case DOUBLE_MIN: return MPI_DOUBLE;
    case MAXLOC:
    case MINLOC: return MPI_2INT;
    case COMPOSED:
        if (pairs == MPI_DATATYPE_NULL) {
            MPI_Type_contiguous(2, MPI_INT, &pairs);
            MPI_Type_commit(&pairs);
        }
        return pairs;
    default: return MPI_INT;
    }
}

static MPI_Op op_of(enum kind kind) {
    static MPI_Op composed = MPI_OP_NULL;
    switch (kind) {
    case MAX:
    case LONG_MAX: return MPI_MAX;
    case MIN:
    case DOUBLE_MIN: return MPI_MIN;
    case BXOR: return MPI_BXOR;
    case LAND: return MPI_LAND;
    case MAXLOC: return MPI_MAXLOC;
    case MINLOC: return MPI_MINLOC;
    case COMPOSED:
        if (composed == MPI_OP_NULL)
            MPI_Op_create(compose, 0, &composed);
        return composed;
    default: return MPI_SUM;
    }
}

/* What `rank` gives at position `i`. */
static void give(const struct call *call, enum kind kind, int rank, int i, void *place) {
    int value = cell(call->salt, rank, 1, i) % 1000;
    int64_t wide = value * (int64_t)1000000007;
    double real = value / 8.0;
    struct pair pair = {kind == COMPOSED ? value : value % 5, kind == COMPOSED ? cell(call->salt, rank, 2, i) % PRIME : rank};
    switch (kind) {
    case LAND: value = value % 7 != 0; break;
    case LONG_SUM:
    case LONG_MAX: memcpy(place, &wide, sizeof wide); return;
    case DOUBLE_SUM:
    case DOUBLE_MIN: memcpy(place, &real, sizeof real); return;
    case MAXLOC:
    case MINLOC:
    case COMPOSED: memcpy(place, &pair, sizeof pair); return;
    default: break;
    }
    memcpy(place, &value, sizeof value);
}

/* One step of the same computation: `sum` and then `more`. */
static void add(enum kind kind, void *sum, const void *more) {
    int *i = sum;
    int64_t *l = sum;
    double *d = sum;
    struct pair *p = sum;
    const struct pair *q = more;
    switch (kind) {
    case SUM: *i += *(const int *)more; break;
    case MAX: *i = *i > *(const int *)more ? *i : *(const int *)more; break;
    case MIN: *i = *i < *(const int *)more ? *i : *(const int *)more; break;
    case BXOR: *i ^= *(const int *)more; break;
    case LAND: *i = *i && *(const int *)more; break;
    case LONG_SUM: *l += *(const int64_t *)more; break;
    case LONG_MAX: *l = *l > *(const int64_t *)more ? *l : *(const int64_t *)more; break;
    case DOUBLE_SUM: *d += *(const double *)more; break;
    case DOUBLE_MIN: *d = *d < *(const double *)more ? *d : *(const double *)more; break;
    case MAXLOC: *p = q->a > p->a || (q->a == p->a && q->b < p->b) ? *q : *p; break;
    case MINLOC: *p = q->a < p->a || (q->a == p->a && q->b < p->b) ? *q : *p; break;
    case COMPOSED: {
        struct pair both = {p->a * q->a % PRIME, (p->b * q->a + q->b) % PRIME};
        *p = both;
        break;
    }
    default: fail("no such operation");
    }
}

/* Of the values of the processes `0 .. upto` at `first ..`, into `want`. */
static void fold(const struct call *call, enum kind kind, int upto, int first, int count, unsigned char *want) {
    size_t size = bytes_of(kind);
    int64_t more;
    for (int i = 0; i < count; i++) {
        give(call, kind, 0, first + i, want + size * (size_t)i);
        for (int rank = 1; rank <= upto; rank++) {
            give(call, kind, rank, first + i, &more);
            add(kind, want + size * (size_t)i, &more);
        }
    }
}

static void make(struct call *call, int form, enum kind kind, const void *out, void *in, int count, const int *counts) {
    MPI_Datatype type = type_of(kind);
    MPI_Op op = op_of(kind);
    MPI_Comm comm = COMM;
    if (call->is_blocking)
        switch (form) {
        case 0: MPI_Reduce(out, in, count, type, op, call->root, comm); return;
        case 1: MPI_Allreduce(out, in, count, type, op, comm); return;
        case 2: MPI_Scan(out, in, count, type, op, comm); return;
        case 3: MPI_Exscan(out, in, count, type, op, comm); return;
        case 4: MPI_Reduce_scatter_block(out, in, count, type, op, comm); return;
        default: MPI_Reduce_scatter(out, in, counts, type, op, comm); return;
        }
    switch (form) {
    case 0: MPI_Ireduce(out, in, count, type, op, call->root, comm, REQUEST); return;
    case 1: MPI_Iallreduce(out, in, count, type, op, comm, REQUEST); return;
    case 2: MPI_Iscan(out, in, count, type, op, comm, REQUEST); return;
    case 3: MPI_Iexscan(out, in, count, type, op, comm, REQUEST); return;
    case 4: MPI_Ireduce_scatter_block(out, in, count, type, op, comm, REQUEST); return;
    default: MPI_Ireduce_scatter(out, in, counts, type, op, comm, REQUEST);
    }
}

void reduction(struct call *call, struct dice *dice, int form) {
    static const char *const names[] = {"reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter"};
    enum kind kind = (enum kind)below(dice, KINDS);
    size_t size = bytes_of(kind);
    int count = call->count, given = count, mine = count, first = 0, upto = call->n - 1, gets = 1;
    int *counts = ints(call->n);
    for (int rank = 0, sum = 0; rank < call->n && form == 5; rank++) {
        counts[rank] = length(call, 0, rank);
        if (rank == call->me)
            first = sum, mine = counts[rank];
        sum += counts[rank];
        given = sum;
    }
    if (form == 4)
        given = call->n * count, first = call->me * count;
    if (form == 2)
        upto = call->me;
    if (form == 3)
        upto = call->me - 1, gets = call->me > 0;
    if (form == 0)
        gets = call->me == call->root;
    unsigned char *out = lend(size * (size_t)given), *want = lend(size * (size_t)mine);
    int room = call->is_in_place && given > mine ? given : mine;
    unsigned char *in = lend(size * (size_t)room);
    memset(in, 0xa5, size * (size_t)room);
    for (int i = 0; i < given; i++)
        give(call, kind, call->me, i, out + size * (size_t)i);
    if (gets)
        fold(call, kind, upto, first, mine, want);
    /* In place is for the root of a reduce alone, and for all members of the others. */
    int is_in_place = call->is_in_place && (form != 0 || gets);
    if (is_in_place)
        memcpy(in, out, size * (size_t)given);
    call->work = start_work(names[form]);
    if (gets) {
        call->work->got = in;
        call->work->want = want;
        call->work->bytes = size * (size_t)mine;
    }
    make(call, form, kind, is_in_place ? MPI_IN_PLACE : out, in, count, counts);
}
