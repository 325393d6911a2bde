/* A shower of messages between the processes of a communicator: every way to send, every way to receive, named sources and tags or
 * any. What a receive from anybody may get is known as a set; the order in which one process sends is known, and must be kept. */
#include "random.h"
#include <string.h>

#define TAGS 3
#define GUARD (-7)

enum how_received { NAMED, ANY_SOURCE, ANY_TAG, ANY_OF_BOTH };

struct message {
    int src, dst, tag, count;
    /* How it is sent. */
    int mode;
    int is_taken;
};

/* All messages of one shower, shared by the receives of this process. */
struct shower {
    struct message *list;
    int count, me;
    enum how_received how;
    uint64_t salt;
};

/* One receive of this process. */
struct expected {
    struct shower *shower;
    /* Which message it must be, or -1 where the status tells. */
    int index;
    struct layout layout;
    int *buffer;
};

static void look(struct shower *shower, int index, const struct layout *layout, const int *buffer) {
    const struct message *message = &shower->list[index];
    for (int i = 0; i < message->count; i++) {
        int place = layout ? layout->places[i] : i;
        int wanted = cell(shower->salt, index, message->dst, i);
        if (buffer[place] != wanted)
            fail("message %d from %d to %d with tag %d: int %d of %d is %d, not %d", index, message->src, message->dst,
                 message->tag, i, message->count, buffer[place], wanted);
    }
}

/* Where nothing belongs, nothing must have been written. */
static void look_between(const struct layout *layout, const int *buffer) {
    unsigned char *is_place = lend((size_t)layout->extent);
    memset(is_place, 0, (size_t)layout->extent);
    for (int i = 0; i < layout->count; i++)
        is_place[layout->places[i]] = 1;
    for (int at = 0; at < layout->extent; at++)
        if (!is_place[at] && buffer[at] != GUARD)
            fail("a receive has written %d between the places of its datatype", buffer[at]);
}

/* The message that must be the next one from `src` with `tag`, in the order of its sender. */
static int next_from(struct shower *shower, int src, int tag) {
    for (int index = 0; index < shower->count; index++) {
        struct message *message = &shower->list[index];
        int is_wanted = message->dst == shower->me && message->src == src && !message->is_taken;
        if (is_wanted && (tag == MPI_ANY_TAG || message->tag == tag)) {
            message->is_taken = 1;
            return index;
        }
    }
    fail("a message from %d with tag %d that nobody has sent", src, tag);
}

static void received(struct shower *shower, int index, const struct layout *layout, const int *buffer, const MPI_Status *status) {
    const struct message *message = &shower->list[index];
    int ints;
    MPI_Get_count(status, MPI_INT, &ints);
    if (status->MPI_SOURCE != message->src || status->MPI_TAG != message->tag || ints != message->count)
        fail("message %d is %d ints from %d with tag %d, its status says %d from %d with tag %d", index, message->count, message->src,
             message->tag, ints, status->MPI_SOURCE, status->MPI_TAG);
    look(shower, index, layout, buffer);
}

/* Receives are finished in the order in which they were posted, so the next message of a sender is known. */
static void finish(struct work *work, const MPI_Status *status) {
    struct expected *expected = work->more;
    struct shower *shower = expected->shower;
    if (expected->index >= 0) {
        received(shower, expected->index, &expected->layout, expected->buffer, status);
        look_between(&expected->layout, expected->buffer);
        return;
    }
    int tag = shower->how == ANY_SOURCE ? status->MPI_TAG : MPI_ANY_TAG;
    received(shower, next_from(shower, status->MPI_SOURCE, tag), NULL, expected->buffer, status);
}

/* Posts the receive for the message `index`, or for any message that may come in its place. */
static void post(const struct group *group, struct dice *dice, struct shower *shower, int index, int largest) {
    const struct message *message = &shower->list[index];
    struct expected *expected = lend(sizeof *expected);
    struct work *work = start_work("receive");
    int is_named = shower->how == NAMED;
    /* With one of them open, the order of one sender still says which message comes. */
    expected->shower = shower;
    expected->index = is_named ? index : -1;
    expected->layout = random_layout(dice, is_named ? message->count : largest);
    struct layout *layout = &expected->layout;
    expected->buffer = lend(sizeof(int) * (size_t)(layout->extent + 1));
    for (int i = 0; i < layout->extent; i++)
        expected->buffer[i] = GUARD;
    work->finish = finish;
    work->more = expected;
    int src = shower->how == ANY_SOURCE || shower->how == ANY_OF_BOTH ? MPI_ANY_SOURCE : message->src;
    int tag = shower->how == ANY_TAG || shower->how == ANY_OF_BOTH ? MPI_ANY_TAG : message->tag;
    int count = is_named ? 1 : largest;
    MPI_Datatype type = is_named ? layout->type : MPI_INT;
    int *buffer = expected->buffer;
    if (!is_named) {
        free_layout(layout);
        buffer = expected->buffer = lend(sizeof(int) * (size_t)(largest + 1));
    }
    if (below(dice, 4) == 0) {
        MPI_Recv_init(buffer, count, type, src, tag, group->comm, &work->request);
        MPI_Start(&work->request);
    } else {
        MPI_Irecv(buffer, count, type, src, tag, group->comm, &work->request);
    }
    if (is_named)
        free_layout(layout);
}

/* Receives one message after the other, each looked at before. */
static void take_late(const struct group *group, struct dice *dice, struct shower *shower) {
    for (int index = 0; index < shower->count; index++) {
        const struct message *message = &shower->list[index];
        if (message->dst != group->rank)
            continue;
        int src = shower->how == ANY_SOURCE || shower->how == ANY_OF_BOTH ? MPI_ANY_SOURCE : message->src;
        int tag = shower->how == ANY_TAG || shower->how == ANY_OF_BOTH ? MPI_ANY_TAG : message->tag;
        MPI_Status seen, status;
        MPI_Message matched = MPI_MESSAGE_NULL;
        int found = 0, ints, way = below(dice, 4);
        if (way == 0)
            MPI_Probe(src, tag, group->comm, &seen);
        else if (way == 1)
            MPI_Mprobe(src, tag, group->comm, &matched, &seen);
        while (way == 2 && !found)
            MPI_Iprobe(src, tag, group->comm, &found, &seen);
        while (way == 3 && !found)
            MPI_Improbe(src, tag, group->comm, &found, &matched, &seen);
        MPI_Get_count(&seen, MPI_INT, &ints);
        int *buffer = lend(sizeof(int) * (size_t)(ints + 1));
        if (matched != MPI_MESSAGE_NULL)
            MPI_Mrecv(buffer, ints, MPI_INT, &matched, &status);
        else
            MPI_Recv(buffer, ints, MPI_INT, seen.MPI_SOURCE, seen.MPI_TAG, group->comm, &status);
        if (status.MPI_SOURCE != seen.MPI_SOURCE || status.MPI_TAG != seen.MPI_TAG)
            fail("a message from %d with tag %d was looked at, one from %d with %d received", seen.MPI_SOURCE, seen.MPI_TAG,
                 status.MPI_SOURCE, status.MPI_TAG);
        received(shower, next_from(shower, status.MPI_SOURCE, status.MPI_TAG), NULL, buffer, &status);
    }
}

/* `is_posted`: the receive is known to be there. */
static void send_one(const struct group *group, struct dice *dice, struct shower *shower, int index, int may_block, int is_posted) {
    const struct message *message = &shower->list[index];
    struct layout layout = random_layout(dice, message->count);
    int *buffer = lend(sizeof(int) * (size_t)(layout.extent + 1));
    for (int i = 0; i < layout.count; i++)
        buffer[layout.places[i]] = cell(shower->salt, index, message->dst, i);
    int dst = message->dst, tag = message->tag, mode = message->mode;
    MPI_Comm comm = group->comm;
    if (may_block && mode == 0)
        MPI_Send(buffer, 1, layout.type, dst, tag, comm);
    else if (may_block && mode == 1)
        MPI_Ssend(buffer, 1, layout.type, dst, tag, comm);
    else if (mode == 5 && message->count < 4000)
        MPI_Bsend(buffer, 1, layout.type, dst, tag, comm);
    else if (mode == 6 && is_posted)
        MPI_Rsend(buffer, 1, layout.type, dst, tag, comm);
    else {
        struct work *work = start_work("send");
        switch (mode) {
        case 2: MPI_Issend(buffer, 1, layout.type, dst, tag, comm, &work->request); break;
        case 3: MPI_Send_init(buffer, 1, layout.type, dst, tag, comm, &work->request); break;
        case 4: MPI_Ssend_init(buffer, 1, layout.type, dst, tag, comm, &work->request); break;
        default: MPI_Isend(buffer, 1, layout.type, dst, tag, comm, &work->request);
        }
        if (mode == 3 || mode == 4)
            MPI_Start(&work->request);
    }
    free_layout(&layout);
}

void exchange_messages(const struct group *group, struct dice *dice, uint64_t salt) {
    struct shower *shower = lend(sizeof *shower);
    shower->count = 1 + below(dice, 4 * group->size);
    shower->list = lend(sizeof(struct message) * (size_t)shower->count);
    shower->me = group->rank;
    shower->salt = salt;
    int largest = 0;
    for (int index = 0; index < shower->count; index++) {
        struct message *message = &shower->list[index];
        int size = below(dice, 20);
        message->src = below(dice, group->size);
        message->dst = below(dice, group->size);
        message->tag = below(dice, TAGS);
        message->count = size == 0 ? below(dice, 60000) : size < 4 ? below(dice, 4000) : below(dice, 60);
        message->mode = below(dice, 8);
        message->is_taken = 0;
        if (message->dst == group->rank && message->count > largest)
            largest = message->count;
    }
    /* How each process receives, known to all: to whom receives late no send may block. */
    unsigned char *is_late = lend((size_t)group->size);
    for (int rank = 0; rank < group->size; rank++) {
        enum how_received how = (enum how_received)below(dice, 4);
        is_late[rank] = below(dice, 3) == 0;
        if (rank == group->rank)
            shower->how = how;
    }
    struct dice own = dice_of(salt, 99, (uint64_t)group->rank);
    for (int index = 0; index < shower->count && !is_late[group->rank]; index++)
        if (shower->list[index].dst == group->rank)
            post(group, &own, shower, index, largest);
    int are_posted = below(dice, 3) == 0;
    if (are_posted)
        MPI_Barrier(group->comm);
    for (int index = 0; index < shower->count; index++)
        if (shower->list[index].src == group->rank)
            send_one(group, &own, shower, index, !is_late[shower->list[index].dst],
                     are_posted && !is_late[shower->list[index].dst]);
    if (is_late[group->rank])
        take_late(group, &own, shower);
}
