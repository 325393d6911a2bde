/* pulc.h: the native interface of PULC for C: a program attaches, sees its job as one machine, opens named ports and sends
 * tagged messages between them.
 *
 * Every function returns PULC_OK (0) or a negative error code, unless said otherwise; pulc_strerror says what a code means
 * and pulc_last_error what happened in this thread, with values and advice. All functions may be called from any thread.
 * Pointers for results must not be NULL. Link with -lpulc; start with `pulc run -n 4 ./program`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef PULC_H
#define PULC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: 0xMMmm, major and minor. Programs run with any later library of the same major version. */
#define PULC_ABI_VERSION 0x0001

enum {
    PULC_OK = 0,
    PULC_ERR_ATTACH = -1,       /* the job could not be joined */
    PULC_ERR_NOT_ATTACHED = -2, /* pulc_attach has not been called */
    PULC_ERR_FORKED = -3,       /* this process is a fork of the one that attached */
    PULC_ERR_RANK = -4,         /* no such rank (or node) */
    PULC_ERR_NAME = -5,         /* a port's name is empty, too long, not UTF-8, or taken; a channel is open already */
    PULC_ERR_TOO_MANY = -6,     /* the limit on open ports or posted buffers is reached */
    PULC_ERR_UNKNOWN_PORT = -7, /* the receiver has not opened a port or endpoint of that name in time */
    PULC_ERR_TOO_LARGE = -8,    /* the message exceeds the limit on messages */
    PULC_ERR_TRUNCATE = -9,     /* the buffer is too small; the message is kept, the envelope says how much is needed */
    PULC_ERR_PEER_GONE = -10,   /* the other process has ended */
    PULC_ERR_TIMEOUT = -11,     /* nothing happened in time */
    PULC_ERR_MEMORY = -12,      /* out of memory */
    PULC_ERR_DESCRIPTORS = -13, /* out of file descriptors */
    PULC_ERR_ARGUMENT = -14,    /* a null pointer or a value that means nothing */
    PULC_ERR_VERSION = -15,     /* an older PULC is already loaded in this process and lacks this function */
    PULC_ERR_SYSTEM = -16,      /* anything else; see pulc_last_error */
    PULC_ERR_INTERNAL = -17,    /* a defect in PULC; please report it */
    PULC_ERR_TAG = -18,         /* the endpoint has another tag */
    PULC_ERR_IN_HANDLER = -19,  /* handlers of active messages must not block */
    PULC_ERR_MEMBERS = -20,     /* some members did not get the message; each one's status says why */
    PULC_ERR_NOT_TAKEN = -21    /* the other process does not take the port: it has it, or too many offers wait there */
};

/* How messages sent from a port travel. */
enum {
    PULC_ORDERED = 0, /* exactly once, in order; senders wait while the receiver's limits are reached */
    PULC_DATAGRAM = 1 /* at most once, never waiting; what finds no room is dropped and counted */
};

#define PULC_ANY_SOURCE UINT32_MAX
#define PULC_FOREVER ((int64_t)-1)

/* A port opened by this process, and the name of a port of any process. */
typedef struct pulc_port pulc_port;
typedef struct pulc_address pulc_address;

/* What arrived, or is needed: length of the message in bytes. */
typedef struct pulc_envelope {
    uint64_t tag;
    uint64_t len;
    uint32_t src;
    uint32_t reserved;
} pulc_envelope;

/* What one device has moved. */
typedef struct pulc_counters {
    char device[16];
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t system_calls;
} pulc_counters;

/* Version of the library, 0xMMmm. */
uint32_t pulc_version(void);

/* Joins the job. A process started without `pulc run` becomes rank 0 of 1. May be called again. */
int pulc_attach(void);

/* The job as one machine. */
int pulc_rank(uint32_t *rank);
int pulc_size(uint32_t *size);
int pulc_node(uint32_t *node);
int pulc_job(uint64_t *job);
int pulc_node_count(uint32_t *count);
int pulc_node_of(uint32_t rank, uint32_t *node);
/* Copies a node's name with its NUL; PULC_ERR_TRUNCATE when `bytes` are too few. */
int pulc_node_name(uint32_t node, char *name, size_t bytes);

/* Opens a port of this process; closed ports are invalid at once. */
int pulc_port_open(const char *name, int mode, pulc_port **port);
int pulc_port_close(pulc_port *port);
/* Datagrams dropped at this port because they found no room. */
int pulc_port_dropped(pulc_port *port, uint64_t *dropped);

/* Names a port of any process. Keep and reuse it: the port is looked up once. */
int pulc_address_new(uint32_t rank, const char *name, pulc_address **address);
int pulc_address_free(pulc_address *address);

/* Sends `bytes` bytes. `timeout_us`: PULC_FOREVER, or how long to wait for the receiver's room. After PULC_ERR_TIMEOUT nothing
 * of the message arrives. */
int pulc_send(pulc_port *port, const pulc_address *to, uint64_t tag, const void *data, size_t bytes, int64_t timeout_us);

/* Receives one message from `src` (or PULC_ANY_SOURCE) with tag `*tag` (any tag: NULL) into `buffer`. `timeout_us`: 0 looks and
 * does not wait, PULC_FOREVER waits without limit. PULC_ERR_PEER_GONE: nobody is left who could send it. `envelope` may be NULL. */
int pulc_recv(pulc_port *port, uint32_t src, const uint64_t *tag, void *buffer, size_t bytes, int64_t timeout_us,
              pulc_envelope *envelope);

/* One message to many ports. Every member gets it as if it were sent to it alone, a slow one keeps no other waiting; inside a node a
 * long message is written once. Addresses may be freed after pulc_members_new. `statuses` (may be NULL) has room for a status of each
 * member, filled when the call returns PULC_OK or PULC_ERR_MEMBERS; those with PULC_OK have got the message. `timeout_us` as in
 * pulc_send, for each member. Sends with one set of members take turns. */
typedef struct pulc_members pulc_members;
int pulc_members_new(const pulc_address *const *addresses, size_t count, pulc_members **members);
int pulc_members_free(pulc_members *members);
int pulc_send_many(pulc_port *port, pulc_members *members, uint64_t tag, const void *data, size_t bytes, int64_t timeout_us,
                   int *statuses);

/* Moves a port to another process, which takes it with pulc_port_adopt. Messages that wait here and those on their way follow;
 * addresses of the port stay good, and to its receiver the order and number of every sender's messages are as if it had always been
 * there. Waits until it is taken and until all senders have learnt of it; what is not finished by `timeout_us` after it was taken goes
 * on in later calls (pulc_flush and the end of the process wait for it). No other call may use the port meanwhile. After
 * PULC_OK the handle is gone; after an error the port stays here with all its messages. */
int pulc_port_transfer(pulc_port *port, uint32_t rank, int64_t timeout_us);

/* Takes over the port that process `rank` moves here. Its name must be free here: PULC_ERR_NAME. After PULC_ERR_TIMEOUT nothing is
 * lost: the next call has it. Should `rank` end before it has handed over everything, one receive says PULC_ERR_PEER_GONE. */
int pulc_port_adopt(uint32_t rank, const char *name, int64_t timeout_us, pulc_port **port);

/* Waits until one of `count` ports has a message; `*index` says which. Nothing is received yet. */
int pulc_select(pulc_port *const *ports, size_t count, int64_t timeout_us, size_t *index);

/* Rawdata: channels with nothing on top. Both ends are named by the rank at the other end and one number; messages arrive in
 * order and exactly once, each in the buffer of the receive that waits for it or that was posted before. Nothing is matched. */
typedef struct pulc_channel pulc_channel;

/* A posted buffer that has come back. `status`: PULC_OK and `len` bytes at its front; PULC_ERR_TRUNCATE, the message is kept for
 * the next buffer and has `len` bytes; PULC_ERR_PEER_GONE. */
typedef struct pulc_landed {
    uint64_t token;
    void *buffer;
    uint64_t len;
    int32_t status;
    uint32_t reserved;
} pulc_landed;

/* Opens this end of a channel. What is sent before the other end is open waits there. Closing drops what was not received and
 * gives posted buffers back at once. */
int pulc_raw_open(uint32_t rank, uint16_t number, pulc_channel **channel);
int pulc_raw_close(pulc_channel *channel);

/* Sends one message; a long one waits for its receiver. `timeout_us` as in pulc_send. */
int pulc_raw_send(pulc_channel *channel, const void *data, size_t bytes, int64_t timeout_us);

/* Receives the next message, after all posted buffers. `*len` (may be NULL): its length, after PULC_ERR_TRUNCATE the length
 * that is needed. `timeout_us` as in pulc_recv. What stands in `buffer` behind the message, or after an error, is not defined:
 * messages land there before it is known how long and whose they are. */
int pulc_raw_recv(pulc_channel *channel, void *buffer, size_t bytes, int64_t timeout_us, size_t *len);

/* Several messages with one call: a stream of short ones costs less than half. `*sent`: how many have left; all of `count`, unless
 * something went wrong after the first, which the next call meets again. An error says that none has left. */
typedef struct pulc_bytes {
    const void *data;
    size_t bytes;
} pulc_bytes;
int pulc_raw_send_batch(pulc_channel *channel, const pulc_bytes *messages, size_t count, int64_t timeout_us, size_t *sent);

/* Receives the next message and what has come behind it: `*received` messages, at least one and at most `count`, lie one behind the
 * other in `buffer`, their lengths in `lens`. What has no room there stays for the next receive; when that is the first one, the
 * answer is PULC_ERR_TRUNCATE and `lens[0]` says what it needs. `timeout_us` as in pulc_recv, for the first one. */
int pulc_raw_recv_batch(pulc_channel *channel, void *buffer, size_t bytes, size_t *lens, size_t count, int64_t timeout_us,
                        size_t *received);

/* Posts a buffer for a message to land in; it must not be touched until pulc_raw_landed has given it back, in the order
 * of posting, or the channel is closed. */
int pulc_raw_post(pulc_channel *channel, void *buffer, size_t bytes, uint64_t token);
int pulc_raw_landed(pulc_channel *channel, int64_t timeout_us, pulc_landed *landed);

/* Waits until one of `count` channels has a message, a posted buffer that is done, or a dead end; `*index` says which. */
int pulc_raw_select(pulc_channel *const *channels, size_t count, int64_t timeout_us, size_t *index);

/* Memory that processes of this job on this node may read and nobody else may write: a long message out of it, whatever sends it,
 * is copied once, by its receiver, and the call that sends it returns when that is done. A fork's child must not touch it. */
int pulc_alloc(size_t bytes, void **memory);
int pulc_free(void *memory);

/* Loans: memory that is filled, sent without a copy, whatever its length, and read by its receiver until the view is dropped.
 * Between nodes the bytes travel as an ordinary message. A sent or dropped loan is the caller's no more, also after an error. */
typedef struct pulc_loan pulc_loan;
typedef struct pulc_view pulc_view;
int pulc_raw_loan(pulc_channel *channel, size_t bytes, pulc_loan **loan, void **data);
int pulc_raw_send_loan(pulc_channel *channel, pulc_loan *loan, int64_t timeout_us);
int pulc_loan_drop(pulc_loan *loan);

/* Receives the next message where it lies. What lies in the sender's memory the sender can still change: copy what must not
 * change under your hands. pulc_view_data is NULL for what is no view. */
int pulc_raw_recv_view(pulc_channel *channel, int64_t timeout_us, pulc_view **view, size_t *len);
int pulc_view_copy(const pulc_view *view, size_t offset, void *buffer, size_t bytes);
const volatile void *pulc_view_data(const pulc_view *view);
int pulc_view_drop(pulc_view *view);

/* One wait for several things: ports, channels, bundles of active messages (pulc_am.h), and descriptors as in poll(2). */
enum {
    PULC_ITEM_PORT = 1,    /* `object` is a pulc_port */
    PULC_ITEM_CHANNEL = 2, /* `object` is a pulc_channel */
    PULC_ITEM_BUNDLE = 3,  /* `object` is a pulc_am_bundle */
    PULC_ITEM_FD = 4,      /* `fd` is an open descriptor */
    PULC_ITEM_REQUEST = 5  /* `object` points to an MPI_Request: readable when MPI_Test would complete it; one that is null never is */
};
enum {
    PULC_READABLE = 1, /* a message can be received, a handler can run, bytes can be read */
    PULC_WRITABLE = 2, /* bytes can be written (descriptors only) */
    PULC_ENDED = 4     /* nothing more comes: the next receive or read says why; told without being asked for */
};
typedef struct pulc_item {
    int kind;
    int fd;          /* descriptors only */
    void *object;    /* everything else */
    uint32_t wanted; /* descriptors only: PULC_READABLE, PULC_WRITABLE */
    uint32_t ready;  /* filled in */
} pulc_item;

/* Waits until at least one item is ready and fills in `ready` of each; `*ready` is how many are. Nothing is received yet. Sleeps
 * meanwhile. A signal does not end the wait: to hear of signals, add a signalfd or a pipe that the signal handler writes to.
 * PULC_ERR_ARGUMENT: no item, an unknown kind, or a descriptor that is not open. */
int pulc_select_items(pulc_item *items, size_t count, int64_t timeout_us, size_t *ready);

/* The other way round: a descriptor for a loop of your own (poll, epoll, an event library). The order is
 *   1. take everything there is (pulc_recv with a timeout of 0 until PULC_ERR_TIMEOUT, pulc_am_poll),
 *   2. pulc_wakeup_arm with the same ports, channels and bundles; `*ready` > 0: back to 1, there is something,
 *   3. wait until the descriptor is readable, then back to 1.
 * Nothing is lost in between. The descriptor is never read, written or closed: arming makes it unreadable, freeing closes it. It may
 * become readable for nothing, while it is armed about four times a second. */
typedef struct pulc_wakeup pulc_wakeup;
int pulc_wakeup_new(pulc_wakeup **wakeup);
int pulc_wakeup_fd(const pulc_wakeup *wakeup, int *fd);
int pulc_wakeup_arm(const pulc_wakeup *wakeup, pulc_item *items, size_t count, size_t *ready);
int pulc_wakeup_free(pulc_wakeup *wakeup);

/* Fills at most `max` entries, one per device; `*count` is how many devices there are. */
int pulc_device_counters(pulc_counters *counters, size_t max, size_t *count);

/* Waits until everything sent to other nodes has arrived there. Done by itself when the process exits. */
int pulc_flush(void);

/* Ends the whole job with this status and message. Does not return. */
void pulc_abort(uint8_t status, const char *message);

/* What an error code means; never NULL. */
const char *pulc_strerror(int code);

/* What last went wrong in this thread, in words; empty if nothing. Valid until this thread's next failing call. */
const char *pulc_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
