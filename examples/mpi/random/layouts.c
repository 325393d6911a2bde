/* Datatypes made by dice, each with a list of the places of its numbers that was made without asking the library. */
#include "random.h"
#include <stdlib.h>

/* Block lengths that add up to `count`; returns how many. */
static int cut(struct dice *dice, int count, int *lengths) {
    int blocks = 0;
    while (count > 0) {
        int length = 1 + below(dice, count < 9 ? count : 9);
        lengths[blocks++] = length;
        count -= length;
    }
    return blocks;
}

static void place(struct layout *layout, int *filled, int at, int length) {
    for (int i = 0; i < length; i++)
        layout->places[(*filled)++] = at + i;
    if (at + length > layout->extent)
        layout->extent = at + length;
}

/* `blocks` equal ones, one each `stride`. */
static void strided(struct dice *dice, struct layout *layout) {
    int count = layout->count, length = 1 + below(dice, 6), filled = 0;
    while (count % length)
        length--;
    int stride = length + below(dice, 5);
    for (int block = 0; block < count / length; block++)
        place(layout, &filled, block * stride, length);
    if (below(dice, 2))
        MPI_Type_vector(count / length, length, stride, MPI_INT, &layout->type);
    else
        MPI_Type_create_hvector(count / length, length, (MPI_Aint)(stride * (int)sizeof(int)), MPI_INT, &layout->type);
}

/* Blocks of any length, in any order of their places. */
static void scattered(struct dice *dice, struct layout *layout, int with_bytes) {
    int count = layout->count, filled = 0;
    int *lengths = lend(sizeof(int) * (size_t)count), *at = lend(sizeof(int) * (size_t)count);
    MPI_Aint *bytes = lend(sizeof(MPI_Aint) * (size_t)count);
    MPI_Datatype *types = lend(sizeof(MPI_Datatype) * (size_t)count);
    int blocks = cut(dice, count, lengths), end = below(dice, 3);
    for (int block = 0; block < blocks; block++) {
        at[block] = end;
        end += lengths[block] + below(dice, 4);
    }
    for (int block = blocks - 1; block > 0; block--) {
        int other = below(dice, block + 1), length = lengths[block], start = at[block];
        lengths[block] = lengths[other], at[block] = at[other];
        lengths[other] = length, at[other] = start;
    }
    for (int block = 0; block < blocks; block++) {
        bytes[block] = (MPI_Aint)(at[block] * (int)sizeof(int));
        types[block] = MPI_INT;
        place(layout, &filled, at[block], lengths[block]);
    }
    if (!with_bytes)
        MPI_Type_indexed(blocks, lengths, at, MPI_INT, &layout->type);
    else if (below(dice, 2))
        MPI_Type_create_hindexed(blocks, lengths, bytes, MPI_INT, &layout->type);
    else
        MPI_Type_create_struct(blocks, lengths, bytes, types, &layout->type);
}

/* A part of a matrix. */
static void part(struct dice *dice, struct layout *layout) {
    int width = 1 + below(dice, 7), filled = 0;
    while (layout->count % width)
        width--;
    int parts[2] = {layout->count / width, width}, starts[2] = {below(dice, 3), below(dice, 3)};
    int sizes[2] = {parts[0] + starts[0] + below(dice, 3), width + starts[1] + below(dice, 3)};
    for (int row = 0; row < parts[0]; row++)
        place(layout, &filled, (starts[0] + row) * sizes[1] + starts[1], width);
    layout->extent = sizes[0] * sizes[1];
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &layout->type);
}

/* Pairs, one each three ints, by a type of pairs that has been made longer. */
static void nested(struct layout *layout) {
    int filled = 0;
    for (int pair = 0; pair < layout->count / 2; pair++)
        place(layout, &filled, pair * 3, 2);
    MPI_Datatype two, three;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, (MPI_Aint)(3 * sizeof(int)), &three);
    MPI_Type_contiguous(layout->count / 2, three, &layout->type);
    MPI_Type_free(&two);
    MPI_Type_free(&three);
    layout->extent = 3 * (layout->count / 2);
}

struct layout random_layout(struct dice *dice, int count) {
    struct layout layout = {MPI_INT, count, lend(sizeof(int) * (size_t)count), 0, 1};
    int kind = count == 0 || count > 5000 ? 0 : below(dice, 6);
    if (kind == 5 && count % 2)
        kind = 4;
    switch (kind) {
    case 1: strided(dice, &layout); break;
    case 2: scattered(dice, &layout, 0); break;
    case 3: scattered(dice, &layout, 1); break;
    case 4: part(dice, &layout); break;
    case 5: nested(&layout); break;
    default: {
        int filled = 0;
        place(&layout, &filled, 0, count);
        MPI_Type_contiguous(count, MPI_INT, &layout.type);
    }
    }
    MPI_Type_commit(&layout.type);
    int bytes;
    MPI_Type_size(layout.type, &bytes);
    if (bytes != count * (int)sizeof(int))
        fail("a datatype of %d ints has %d bytes", count, bytes);
    return layout;
}

void free_layout(struct layout *layout) {
    if (layout->is_made)
        MPI_Type_free(&layout->type);
    layout->is_made = 0;
}
