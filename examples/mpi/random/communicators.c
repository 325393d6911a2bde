/* Communicators made by dice out of others, by every call that makes one. */
#include "random.h"
#include <stdlib.h>

void adopt(struct group *group, MPI_Comm comm) {
    group->comm = comm;
    free(group->members);
    group->members = NULL;
    group->size = group->rank = 0;
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_size(comm, &group->size);
    MPI_Comm_rank(comm, &group->rank);
    group->members = malloc(sizeof(int) * (size_t)group->size);
    int *ranks = malloc(sizeof(int) * (size_t)group->size);
    if (!group->members || !ranks)
        fail("no memory for the members of a communicator");
    MPI_Group here, world;
    MPI_Comm_group(comm, &here);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int rank = 0; rank < group->size; rank++)
        ranks[rank] = rank;
    MPI_Group_translate_ranks(here, group->size, ranks, world, group->members);
    MPI_Group_free(&here);
    MPI_Group_free(&world);
    free(ranks);
    if (group->members[group->rank] != world_rank)
        fail("rank %d of a communicator is rank %d of all, not %d", group->rank, group->members[group->rank], world_rank);
}

/* The members that a split must give: those of the colour, by key, and by rank where keys are equal. */
static void look(const struct group *made, const struct group *parent, const int *colours, const int *keys) {
    int found = 0, colour = colours[parent->rank];
    for (int rank = 0; rank < parent->size; rank++)
        found += colours[rank] == colour;
    if (found != made->size)
        fail("a split made a communicator of %d, not of %d", made->size, found);
    for (int i = 0; i < parent->size; i++) {
        if (colours[i] != colour)
            continue;
        int place = 0;
        for (int j = 0; j < parent->size; j++)
            place += colours[j] == colour && (keys[j] < keys[i] || (keys[j] == keys[i] && j < i));
        if (made->members[place] != parent->members[i])
            fail("rank %d of a split is %d, not %d", place, made->members[place], parent->members[i]);
    }
}

static void split(struct group *made, const struct group *parent, struct dice *dice) {
    int *colours = lend(sizeof(int) * (size_t)parent->size), *keys = lend(sizeof(int) * (size_t)parent->size);
    int kinds = 1 + below(dice, 3);
    for (int rank = 0; rank < parent->size; rank++) {
        int colour = below(dice, kinds + 1);
        colours[rank] = colour == kinds && rank > 0 ? MPI_UNDEFINED : colour;
        keys[rank] = below(dice, 4);
    }
    MPI_Comm comm;
    MPI_Comm_split(parent->comm, colours[parent->rank], keys[parent->rank], &comm);
    if ((comm == MPI_COMM_NULL) != (colours[parent->rank] == MPI_UNDEFINED))
        fail("a split gave %s communicator", comm == MPI_COMM_NULL ? "no" : "an undefined");
    adopt(made, comm);
    if (comm != MPI_COMM_NULL)
        look(made, parent, colours, keys);
}

/* Some of the members, without the others taking part. */
static MPI_Comm chosen(const struct group *parent, struct dice *dice, int all_call) {
    int *ranks = lend(sizeof(int) * (size_t)parent->size), count = 0, am_in = 0;
    for (int rank = parent->size - 1; rank >= 0; rank--)
        if (below(dice, 3) > 0 || (rank == 0 && count == 0)) {
            ranks[count++] = rank;
            am_in |= rank == parent->rank;
        }
    MPI_Group here, some;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_group(parent->comm, &here);
    MPI_Group_incl(here, count, ranks, &some);
    if (all_call)
        MPI_Comm_create(parent->comm, some, &comm);
    else if (am_in)
        MPI_Comm_create_group(parent->comm, some, 3, &comm);
    MPI_Group_free(&here);
    MPI_Group_free(&some);
    return comm;
}

/* Two halves that know each other, made one again. */
static MPI_Comm merged(const struct group *parent) {
    MPI_Comm half, both, comm;
    int is_high = parent->rank >= parent->size / 2, leader = is_high ? 0 : parent->size / 2, size;
    MPI_Comm_split(parent->comm, is_high, 0, &half);
    MPI_Intercomm_create(half, 0, parent->comm, leader, 5, &both);
    MPI_Comm_remote_size(both, &size);
    if (size != (is_high ? parent->size / 2 : parent->size - parent->size / 2))
        fail("the other half has %d processes", size);
    int sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
    if (sum != size)
        fail("a sum over the other half is %d, not %d", sum, size);
    MPI_Intercomm_merge(both, is_high, &comm);
    MPI_Comm_free(&half);
    MPI_Comm_free(&both);
    return comm;
}

/* A grid whose neighbours are asked with a shift. */
static MPI_Comm grid(const struct group *parent, struct dice *dice) {
    int dims[2] = {0, 0}, periods[2] = {below(dice, 2), below(dice, 2)}, coords[2], from, to, got = -1;
    MPI_Comm comm;
    MPI_Dims_create(parent->size, 2, dims);
    MPI_Cart_create(parent->comm, 2, dims, periods, 0, &comm);
    for (int direction = 0; direction < 2; direction++) {
        MPI_Cart_coords(comm, parent->rank, 2, coords);
        MPI_Cart_shift(comm, direction, 1, &from, &to);
        MPI_Sendrecv(&parent->rank, 1, MPI_INT, to, 1, &got, 1, MPI_INT, from, 1, comm, MPI_STATUS_IGNORE);
        coords[direction]--;
        int is_inside = coords[direction] >= 0, wanted = MPI_PROC_NULL;
        if (is_inside || periods[direction])
            MPI_Cart_rank(comm, coords, &wanted);
        if (from != wanted || (from != MPI_PROC_NULL && got != from))
            fail("the neighbour of %d in a grid is %d and sent %d, not %d", parent->rank, from, got, wanted);
    }
    return comm;
}

void remake(int slot, int parent_slot, struct dice *dice) {
    struct group *made = &groups[slot];
    const struct group *parent = &groups[parent_slot];
    int kind = below(dice, 8);
    /* All processes roll the same dice here; what follows depends on the communicator. */
    uint64_t salt = roll(dice);
    if (made->comm != MPI_COMM_NULL)
        MPI_Comm_free(&made->comm);
    adopt(made, MPI_COMM_NULL);
    if (parent->comm == MPI_COMM_NULL)
        return;
    struct dice own = dice_of(salt, (uint64_t)parent->members[0], 11);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request;
    switch (kind) {
    case 0: MPI_Comm_dup(parent->comm, &comm); break;
    case 1:
        MPI_Comm_idup(parent->comm, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case 2: MPI_Comm_split_type(parent->comm, MPI_COMM_TYPE_SHARED, below(&own, 3), MPI_INFO_NULL, &comm); break;
    case 3: comm = chosen(parent, &own, 1); break;
    case 4: comm = chosen(parent, &own, 0); break;
    case 5:
        if (parent->size > 1) {
            comm = merged(parent);
            break;
        }
        MPI_Comm_dup(parent->comm, &comm);
        break;
    case 6: comm = grid(parent, &own); break;
    default: split(made, parent, &own); return;
    }
    adopt(made, comm);
}
