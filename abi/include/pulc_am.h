/* pulc_am.h: active messages. A request names the handler that runs at its receiver; that handler may reply once, and the reply
 * runs a handler where the request came from.
 *
 * Functions return PULC_OK (0) or a negative error code of pulc.h; those that say so return PULC_AM_AGAIN when there is no
 * credit or no room now. Handlers run in the thread that polls or waits on their bundle, or in the thread of pulc_am_serve,
 * and must not block: calls that take a bundle return PULC_ERR_IN_HANDLER there. All functions may be called from any thread.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef PULC_AM_H
#define PULC_AM_H

#include <pulc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PULC_AM_AGAIN 1
/* Arguments of one message, and bytes of a medium payload, at most. */
#define PULC_AM_ARGS_MAX 8
#define PULC_AM_MEDIUM_MAX 8192
/* Tags of endpoints that refuse (and are not found) and that take every request. */
#define PULC_AM_TAG_NONE ((uint64_t)0)
#define PULC_AM_TAG_ALL UINT64_MAX

/* Whether the handlers of a bundle run one after another or in every thread that polls. */
enum { PULC_AM_SEQ = 0, PULC_AM_PAR = 1 };

/* Kinds of messages. */
enum {
    PULC_AM_SHORT = 1,        /* arguments only */
    PULC_AM_MEDIUM = 2,       /* and a payload that is valid until the handler returns */
    PULC_AM_LONG = 4,         /* and a payload that has landed in the segment */
    PULC_AM_FETCH = 8,        /* and a payload that waits to be fetched */
    PULC_AM_REPLY = 16,
    PULC_AM_MEDIUM_REPLY = 32,
    PULC_AM_LONG_REPLY = 64
};

/* Why a message came back. */
enum {
    PULC_AM_BAD_ARGUMENTS = 1,
    PULC_AM_BAD_ENDPOINT = 2, /* it is closed */
    PULC_AM_BAD_TAG = 3,      /* it has another tag now */
    PULC_AM_BAD_HANDLER = 4,  /* it has no such handler for this kind of message */
    PULC_AM_BAD_OFFSET = 5,
    PULC_AM_BAD_LENGTH = 6,
    PULC_AM_NO_ROOM = 7,
    PULC_AM_PEER_GONE = 8,
    PULC_AM_DECLINED = 9,     /* an offered payload was not fetched */
    PULC_AM_PANICKED = 10
};

typedef struct pulc_am_bundle pulc_am_bundle;
typedef struct pulc_am_server pulc_am_server;
typedef struct pulc_am_endpoint pulc_am_endpoint;
typedef struct pulc_am_peer pulc_am_peer;
typedef struct pulc_am_event pulc_am_event;
typedef struct pulc_am_prepared pulc_am_prepared;
typedef struct pulc_am_token pulc_am_token;

/* What a handler is given, valid until it returns. `token` is NULL in handlers of replies. `data` and `bytes`: a medium payload;
 * or where a long one has landed, `offset` bytes into the segment; `bytes` alone: how long an offered payload is. */
typedef struct pulc_am_call {
    pulc_am_token *token;
    const uint64_t *args;
    const void *data;
    uint64_t bytes;
    uint64_t offset;
    uint32_t count;
    uint32_t source;
    uint32_t kind;
    uint32_t reserved;
} pulc_am_call;

/* A message that came back: to whom it was sent, for which handler, and why it was not delivered. */
typedef struct pulc_am_back {
    const uint64_t *args;
    uint32_t count;
    uint32_t peer;
    uint32_t handler;
    uint32_t kind;
    int32_t status;
    uint32_t reserved;
} pulc_am_back;

/* What active messages of this process have done: sent requests, replies and empty acknowledgements; handlers run; messages
 * that came back; requests that found no credit or no room; frames dropped because nothing honest sends them. */
typedef struct pulc_am_counts {
    uint64_t requests, replies, acks, handled, returned, again, strays;
} pulc_am_counts;

typedef void (*pulc_am_handler)(const pulc_am_call *call, void *context);
typedef void (*pulc_am_returned)(const pulc_am_back *back, void *context);

/* Bundles: the unit of progress. `ran` (may be NULL): how many handlers have run. pulc_am_wait returns after at least one, or
 * with PULC_ERR_TIMEOUT; it sleeps while nothing comes. */
int pulc_am_bundle_new(int mode, pulc_am_bundle **bundle);
int pulc_am_bundle_free(pulc_am_bundle *bundle);
int pulc_am_poll(pulc_am_bundle *bundle, size_t *ran);
int pulc_am_wait(pulc_am_bundle *bundle, int64_t timeout_us, size_t *ran);
int pulc_am_tally(pulc_am_bundle *bundle, pulc_am_counts *counts);

/* Runs the handlers of a bundle in a thread of its own until it is stopped. */
int pulc_am_serve(pulc_am_bundle *bundle, pulc_am_server **server);
int pulc_am_server_stop(pulc_am_server *server);

/* Endpoints. After closing no handler of it begins; memory of its segment is the program's own again. */
int pulc_am_endpoint_open(pulc_am_bundle *bundle, const char *name, uint64_t tag, pulc_am_endpoint **endpoint);
int pulc_am_endpoint_close(pulc_am_endpoint *endpoint);
int pulc_am_set_tag(pulc_am_endpoint *endpoint, uint64_t tag);
/* Memory that long messages land in. It is kept until another segment is set or the endpoint is closed. */
int pulc_am_set_segment(pulc_am_endpoint *endpoint, void *base, size_t bytes);
/* Sets the handler of an index for messages of `kinds`, replacing what was there; NULL takes it away. `run` and `context` may be
 * used by any thread that polls. */
int pulc_am_on(pulc_am_endpoint *endpoint, uint8_t index, uint32_t kinds, pulc_am_handler run, void *context);
int pulc_am_on_error(pulc_am_endpoint *endpoint, pulc_am_returned run, void *context);
/* The same for messages of PULC_AM_SHORT and PULC_AM_REPLY with a handler that calls nothing of PULC (nor of MPI) but pulc_am_reply.
 * It runs where its message is found, inside of the poll, in any thread that waits for anything, whatever other handlers run meanwhile,
 * and its reply leaves with that poll: the quickest that a request can be answered. It must be short and take no lock that is held while
 * PULC is called. Other calls of PULC in it fail with PULC_ERR_IN_HANDLER instead of waiting for themselves. The place of a usual handler cannot be
 * taken by a leaf handler, nor the other way round: PULC_ERR_ARGUMENT. */
int pulc_am_on_leaf(pulc_am_endpoint *endpoint, uint8_t index, uint32_t kinds, pulc_am_handler run, void *context);

/* Mappings: finds an endpoint elsewhere, waiting until it is open, and agrees on how many requests may be under way to it. */
int pulc_am_map(pulc_am_endpoint *endpoint, pulc_am_bundle *bundle, uint32_t rank, const char *name, uint64_t tag,
                uint16_t credits, int64_t timeout_us, pulc_am_peer **peer);
int pulc_am_unmap(pulc_am_peer *peer);
int pulc_am_credits(pulc_am_peer *peer, uint32_t *left, uint32_t *agreed);

/* Requests. With a bundle they wait for credit and room, running its handlers meanwhile; where it may be NULL they do not wait
 * then, and may return PULC_AM_AGAIN. `data` is free on return. `told` (may be NULL) gives an event that is complete when the
 * handler has returned. */
int pulc_am_request(pulc_am_peer *peer, pulc_am_bundle *bundle_or_null, uint8_t handler, const uint64_t *args, size_t count,
                    pulc_am_event **told);
int pulc_am_request_medium(pulc_am_peer *peer, pulc_am_bundle *bundle_or_null, uint8_t handler, const uint64_t *args,
                           size_t count, const void *data, size_t bytes, pulc_am_event **told);
int pulc_am_request_long(pulc_am_peer *peer, pulc_am_bundle *bundle, uint8_t handler, const uint64_t *args, size_t count,
                         uint64_t offset, const void *data, size_t bytes, pulc_am_event **told);
/* These return as soon as there is credit and keep `data` until `left` is complete. */
int pulc_am_post_long(pulc_am_peer *peer, pulc_am_bundle *bundle, uint8_t handler, const uint64_t *args, size_t count,
                      uint64_t offset, const void *data, size_t bytes, pulc_am_event **left);
int pulc_am_post_fetch(pulc_am_peer *peer, pulc_am_bundle *bundle, uint8_t handler, const uint64_t *args, size_t count,
                       const void *data, size_t bytes, pulc_am_event **left);

/* A medium request whose payload is written straight into the buffer it is sent from: `*data` has `max` bytes until the commit,
 * which never waits. Commit or abandon it before the peer is unmapped. */
int pulc_am_prepare(pulc_am_peer *peer, pulc_am_bundle *bundle_or_null, size_t max, pulc_am_prepared **prepared, void **data);
int pulc_am_commit(pulc_am_prepared *prepared, uint8_t handler, const uint64_t *args, size_t count, size_t bytes);
int pulc_am_abandon(pulc_am_prepared *prepared);

/* Events. `*outcome`: 0 pending, 1 complete, -1 failed; a message that failed has also come back to the error handler. */
int pulc_am_event_test(pulc_am_event *event, int *outcome);
int pulc_am_event_wait(pulc_am_bundle *bundle, pulc_am_event *event, int64_t timeout_us, int *outcome);
int pulc_am_event_free(pulc_am_event *event);

/* For handlers of requests: at most one reply. A short one leaves when the handler returns; `data` is free on return. */
int pulc_am_reply(pulc_am_token *token, uint8_t handler, const uint64_t *args, size_t count);
int pulc_am_reply_medium(pulc_am_token *token, uint8_t handler, const uint64_t *args, size_t count, const void *data,
                         size_t bytes);
int pulc_am_reply_long(pulc_am_token *token, uint8_t handler, const uint64_t *args, size_t count, uint64_t offset,
                       const void *data, size_t bytes);
/* For handlers of offers: fetches the payload to `buffer`, which is kept until `then` is called with it and a token of its
 * own. An offer that is not fetched is declined. */
int pulc_am_fetch(pulc_am_token *token, void *buffer, size_t bytes, pulc_am_handler then, void *context);
/* Name of the endpoint that has sent the request; before the reply only. */
int pulc_am_source_name(pulc_am_token *token, char *name, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
