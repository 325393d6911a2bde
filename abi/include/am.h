/* am.h: the names of AM-2 (Mainwaring and Culler, Active Message Applications Programming Interface, 1995) as a thin layer over
 * pulc_am.h. Everything here is inline; programs link with -lpulc.
 *
 * What differs from other AM-2 libraries: the name of an endpoint (en_t) is its process's rank and a number that is unique in
 * that process, so names can be made up with AM_Name where both sides agree on numbers (AM_AllocateKnownEndpoint). Arguments are
 * int. The first message over a translation waits until the other endpoint is open and has a tag. One thread at a time uses an
 * endpoint here, except through its handlers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef AM_H
#define AM_H

#include <pulc_am.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AM_OK 0
#define AM_ERR_NOT_INIT 1
#define AM_ERR_BAD_ARG 2
#define AM_ERR_RESOURCE 3
#define AM_ERR_NOT_SENT 4
#define AM_ERR_IN_USE 5

/* Why a message came back, as the error handler (index 0) is told. */
#define EBADARGS 1
#define EBADENTRY 2
#define EBADTAG 3
#define EBADHANDLER 4
#define EBADSEGOFF 5
#define EBADLENGTH 6
#define EBADENDPOINT 7
#define ECONGESTION 8
#define EUNREACHABLE 9

#define AM_SEQ 0
#define AM_PAR 1
#define AM_NOEVENTS 0
#define AM_NOTEMPTY 1
#define AM_NONE ((tag_t)0)
#define AM_ALL (~(tag_t)0)

typedef uint64_t tag_t;
typedef int handler_t;
typedef int op_t;
typedef struct am_name {
    uint32_t rank;
    uint32_t number;
} en_t;

/* Highest index of a handler; two more are this layer's own. */
#define AM_HANDLERS 254
#define AM_GET_ 254
#define AM_GOT_ 255

typedef void (*am_function)(void);

typedef struct am_bundle {
    pulc_am_bundle *bundle;
    int mask;
} *eb_t;

struct am_translation {
    int used;
    en_t name;
    tag_t tag;
    pulc_am_peer *peer;
};

typedef struct am_endpoint {
    eb_t bundle;
    pulc_am_endpoint *endpoint;
    en_t name;
    tag_t tag;
    int credits, translations;
    struct am_translation *table;
    am_function handlers[AM_HANDLERS];
    void *segment;
    size_t segment_bytes;
} *ea_t;

/* What a token of a handler points to. */
struct am_token {
    const pulc_am_call *call;
    ea_t endpoint;
};

static inline int am_code_(int code)
{
    switch (code) {
    case PULC_OK: return AM_OK;
    case PULC_ERR_NOT_ATTACHED: return AM_ERR_NOT_INIT;
    case PULC_ERR_ARGUMENT: case PULC_ERR_RANK: case PULC_ERR_NAME: case PULC_ERR_TOO_LARGE: return AM_ERR_BAD_ARG;
    case PULC_ERR_PEER_GONE: case PULC_ERR_IN_HANDLER: return AM_ERR_NOT_SENT;
    default: return AM_ERR_RESOURCE;
    }
}

static inline int am_status_(int status)
{
    switch (status) {
    case PULC_AM_BAD_ARGUMENTS: return EBADARGS;
    case PULC_AM_BAD_ENDPOINT: return EBADENDPOINT;
    case PULC_AM_BAD_TAG: return EBADTAG;
    case PULC_AM_BAD_OFFSET: return EBADSEGOFF;
    case PULC_AM_BAD_LENGTH: return EBADLENGTH;
    case PULC_AM_NO_ROOM: return ECONGESTION;
    case PULC_AM_PEER_GONE: return EUNREACHABLE;
    default: return EBADHANDLER;
    }
}

static inline int AM_Init(void) { return am_code_(pulc_attach()); }
static inline int AM_Terminate(void) { return am_code_(pulc_flush()); }
static inline int AM_MaxShort(void) { return PULC_AM_ARGS_MAX; }
static inline int AM_MaxMedium(void) { return PULC_AM_MEDIUM_MAX; }
static inline int AM_MaxLong(void) { return 1 << 30; }
static inline int AM_MaxNumHandlers(void) { return AM_HANDLERS; }
static inline int AM_MaxNumTranslations(int *count) { *count = 65536; return AM_OK; }
static inline int AM_MaxSegLength(size_t *bytes) { *bytes = (size_t)1 << 40; return AM_OK; }

static inline en_t AM_Name(uint32_t rank, uint32_t number)
{
    en_t name;
    name.rank = rank;
    name.number = number;
    return name;
}

/* --- bundles ------------------------------------------------------------------------------------------------------------- */

static inline int AM_AllocateBundle(int type, eb_t *bundle)
{
    eb_t made = (eb_t)calloc(1, sizeof *made);
    int code;
    if (!made)
        return AM_ERR_RESOURCE;
    code = pulc_am_bundle_new(type == AM_PAR ? PULC_AM_PAR : PULC_AM_SEQ, &made->bundle);
    if (code != PULC_OK) {
        free(made);
        return am_code_(code);
    }
    made->mask = AM_NOTEMPTY;
    *bundle = made;
    return AM_OK;
}

static inline int AM_FreeBundle(eb_t bundle)
{
    int code = pulc_am_bundle_free(bundle->bundle);
    free(bundle);
    return am_code_(code);
}

static inline int AM_Poll(eb_t bundle) { return am_code_(pulc_am_poll(bundle->bundle, NULL)); }
static inline int AM_GetEventMask(eb_t bundle) { return bundle->mask; }
static inline int AM_SetEventMask(eb_t bundle, int mask) { bundle->mask = mask; return AM_OK; }

/* Waits until a handler has run, if the event mask asks for that. */
static inline int AM_Wait(eb_t bundle)
{
    return bundle->mask & AM_NOTEMPTY ? am_code_(pulc_am_wait(bundle->bundle, PULC_FOREVER, NULL)) : AM_OK;
}
static inline int AM_WaitSema(eb_t bundle) { return AM_Wait(bundle); }

/* --- handlers ------------------------------------------------------------------------------------------------------------ */

#define AM_A0_
#define AM_A1_ , a[0]
#define AM_A2_ AM_A1_, a[1]
#define AM_A3_ AM_A2_, a[2]
#define AM_A4_ AM_A3_, a[3]
#define AM_A5_ AM_A4_, a[4]
#define AM_A6_ AM_A5_, a[5]
#define AM_A7_ AM_A6_, a[6]
#define AM_A8_ AM_A7_, a[7]
#define AM_T0_
#define AM_T1_ , int
#define AM_T2_ AM_T1_, int
#define AM_T3_ AM_T2_, int
#define AM_T4_ AM_T3_, int
#define AM_T5_ AM_T4_, int
#define AM_T6_ AM_T5_, int
#define AM_T7_ AM_T6_, int
#define AM_T8_ AM_T7_, int

/* Calls a handler of the program with as many arguments as came. */
static inline void am_call_(const pulc_am_call *call, void *context, int index)
{
    ea_t endpoint = (ea_t)context;
    am_function run = endpoint->handlers[index];
    struct am_token token;
    void *data = (void *)(uintptr_t)call->data;
    size_t bytes = (size_t)call->bytes;
    int a[8] = {0}, at;
    token.call = call;
    token.endpoint = endpoint;
    for (at = 0; at < (int)call->count && at < 8; at++)
        a[at] = (int)call->args[at];
    if (!run)
        return;
    if (call->kind == PULC_AM_SHORT || call->kind == PULC_AM_REPLY) {
#define AM_C_(n) case n: ((void (*)(void * AM_T##n##_))run)(&token AM_A##n##_); break;
        switch (call->count) { AM_C_(0) AM_C_(1) AM_C_(2) AM_C_(3) AM_C_(4) AM_C_(5) AM_C_(6) AM_C_(7) AM_C_(8) }
#undef AM_C_
    } else {
#define AM_C_(n) case n: ((void (*)(void *, void *, size_t AM_T##n##_))run)(&token, data, bytes AM_A##n##_); break;
        switch (call->count) { AM_C_(0) AM_C_(1) AM_C_(2) AM_C_(3) AM_C_(4) AM_C_(5) AM_C_(6) AM_C_(7) AM_C_(8) }
#undef AM_C_
    }
}

/* One entry for each index: the lower layer's handlers are not told theirs. */
struct am_entry {
    ea_t endpoint;
    int index;
};

static inline void am_entry_(const pulc_am_call *call, void *context)
{
    struct am_entry *entry = (struct am_entry *)context;
    am_call_(call, entry->endpoint, entry->index);
}

static inline int AM_SetHandler(ea_t endpoint, handler_t index, am_function run)
{
    struct am_entry *entry;
    if (index < 0 || index >= AM_HANDLERS)
        return AM_ERR_BAD_ARG;
    if (index > 0 && !endpoint->handlers[index] && run) {
        /* Lives as long as the process: a handler may be running when it is replaced. */
        entry = (struct am_entry *)malloc(sizeof *entry);
        if (!entry)
            return AM_ERR_RESOURCE;
        entry->endpoint = endpoint;
        entry->index = index;
        endpoint->handlers[index] = run;
        return am_code_(pulc_am_on(endpoint->endpoint, (uint8_t)index,
                                   PULC_AM_SHORT | PULC_AM_MEDIUM | PULC_AM_LONG | PULC_AM_REPLY | PULC_AM_MEDIUM_REPLY
                                       | PULC_AM_LONG_REPLY,
                                   am_entry_, entry));
    }
    endpoint->handlers[index] = run;
    if (index > 0 && !run)
        return am_code_(pulc_am_on(endpoint->endpoint, (uint8_t)index, 0, NULL, NULL));
    return AM_OK;
}

static inline int AM_SetHandlerAny(ea_t endpoint, handler_t *index, am_function run)
{
    int at;
    for (at = 1; at < AM_HANDLERS; at++) {
        if (!endpoint->handlers[at]) {
            *index = at;
            return AM_SetHandler(endpoint, at, run);
        }
    }
    return AM_ERR_RESOURCE;
}

static inline int AM_GetNumHandlers(ea_t endpoint, int *count) { (void)endpoint; *count = AM_HANDLERS; return AM_OK; }
static inline int AM_SetNumHandlers(ea_t endpoint, int count)
{
    (void)endpoint;
    return count <= AM_HANDLERS ? AM_OK : AM_ERR_RESOURCE;
}

/* Tells the error handler: a status, the kind of message, and what came back. */
static inline void am_error_(ea_t endpoint, int status, op_t kind, const pulc_am_back *back)
{
    if (endpoint->handlers[0])
        ((void (*)(int, op_t, void *))endpoint->handlers[0])(status, kind, (void *)(uintptr_t)back);
    else
        fprintf(stderr, "am: a message of kind %d came back with status %d\n", kind, status);
}

static inline void am_back_(const pulc_am_back *back, void *context)
{
    am_error_((ea_t)context, am_status_(back->status), (op_t)back->kind, back);
}

/* --- endpoints ----------------------------------------------------------------------------------------------------------- */

static inline void am_get_(const pulc_am_call *call, void *context)
{
    ea_t endpoint = (ea_t)context;
    uint64_t source = call->args[0], target = call->args[1], bytes = call->args[2];
    if (source > endpoint->segment_bytes || bytes > endpoint->segment_bytes - source)
        return; /* answered without a reply: nothing is got */
    /* The handler of the asker and up to four arguments for it, two in a word. */
    pulc_am_reply_long(call->token, AM_GOT_, call->args + 3, call->count - 3, target,
                       (const char *)endpoint->segment + source, (size_t)bytes);
}

static inline void am_got_(const pulc_am_call *call, void *context)
{
    pulc_am_call here = *call;
    uint64_t args[8];
    uint32_t count = (uint32_t)(call->args[0] >> 32), at;
    for (at = 0; at < count && at < 8; at++)
        args[at] = (uint64_t)(int)(uint32_t)(call->args[1 + at / 2] >> (32 * (at % 2)));
    here.args = args;
    here.count = count;
    am_call_(&here, context, (int)(call->args[0] & 0xff));
}

static inline int am_open_(eb_t bundle, ea_t *endpoint, uint32_t number, en_t *name)
{
    char text[32];
    uint32_t rank;
    int code;
    ea_t made = (ea_t)calloc(1, sizeof *made);
    if (!made)
        return AM_ERR_RESOURCE;
    made->bundle = bundle;
    made->credits = 16;
    made->tag = AM_NONE;
    code = pulc_rank(&rank);
    made->name = AM_Name(rank, number);
    snprintf(text, sizeof text, "am-2 %u", (unsigned)number);
    if (code == PULC_OK)
        code = pulc_am_endpoint_open(bundle->bundle, text, PULC_AM_TAG_NONE, &made->endpoint);
    if (code != PULC_OK) {
        free(made);
        return code == PULC_ERR_NAME ? AM_ERR_IN_USE : am_code_(code);
    }
    pulc_am_on_error(made->endpoint, am_back_, made);
    pulc_am_on(made->endpoint, AM_GET_, PULC_AM_SHORT, am_get_, made);
    pulc_am_on(made->endpoint, AM_GOT_, PULC_AM_LONG_REPLY, am_got_, made);
    *endpoint = made;
    if (name)
        *name = made->name;
    return AM_OK;
}

/* Known numbers are below 2^31, the others are given out above. */
static inline int AM_AllocateKnownEndpoint(eb_t bundle, ea_t *endpoint, uint32_t number, en_t *name)
{
    return number >> 31 ? AM_ERR_BAD_ARG : am_open_(bundle, endpoint, number, name);
}

static inline int AM_AllocateEndpoint(eb_t bundle, ea_t *endpoint, en_t *name)
{
    uint32_t number;
    int code = AM_ERR_IN_USE;
    for (number = 1u << 31; code == AM_ERR_IN_USE; number++)
        code = am_open_(bundle, endpoint, number, name);
    return code;
}

static inline int AM_SetTag(ea_t endpoint, tag_t tag)
{
    endpoint->tag = tag;
    return am_code_(pulc_am_set_tag(endpoint->endpoint, tag));
}
static inline int AM_GetTag(ea_t endpoint, tag_t *tag) { *tag = endpoint->tag; return AM_OK; }

static inline int AM_SetSeg(ea_t endpoint, void *base, size_t bytes)
{
    endpoint->segment = base;
    endpoint->segment_bytes = bytes;
    return am_code_(pulc_am_set_segment(endpoint->endpoint, base, bytes));
}
static inline int AM_GetSeg(ea_t endpoint, void **base, size_t *bytes)
{
    *base = endpoint->segment;
    *bytes = endpoint->segment_bytes;
    return AM_OK;
}

static inline int AM_SetExpectedResources(ea_t endpoint, int endpoints, int outstanding)
{
    (void)endpoints;
    endpoint->credits = outstanding < 1 ? 1 : outstanding > 32766 ? 32766 : outstanding;
    return AM_OK;
}

/* Bundles are where endpoints were made; there is no moving between them. */
static inline int AM_MoveEndpoint(ea_t endpoint, eb_t from, eb_t to)
{
    (void)endpoint;
    return from == to ? AM_OK : AM_ERR_RESOURCE;
}

/* --- translations -------------------------------------------------------------------------------------------------------- */

static inline int AM_SetNumTranslations(ea_t endpoint, int count)
{
    struct am_translation *table;
    if (count < endpoint->translations)
        return AM_ERR_RESOURCE;
    table = (struct am_translation *)realloc(endpoint->table, (size_t)count * sizeof *table);
    if (!table)
        return AM_ERR_RESOURCE;
    memset(table + endpoint->translations, 0, (size_t)(count - endpoint->translations) * sizeof *table);
    endpoint->table = table;
    endpoint->translations = count;
    return AM_OK;
}
static inline int AM_GetNumTranslations(ea_t endpoint, int *count) { *count = endpoint->translations; return AM_OK; }

static inline int AM_Unmap(ea_t endpoint, int index)
{
    if (index < 0 || index >= endpoint->translations || !endpoint->table[index].used)
        return AM_ERR_BAD_ARG;
    if (endpoint->table[index].peer)
        pulc_am_unmap(endpoint->table[index].peer);
    memset(&endpoint->table[index], 0, sizeof endpoint->table[index]);
    return AM_OK;
}
static inline int AM_UnMap(ea_t endpoint, int index) { return AM_Unmap(endpoint, index); }

/* Only notes the name: the mapping is made by the first message that is sent over it. */
static inline int AM_Map(ea_t endpoint, int index, en_t name, tag_t tag)
{
    struct am_translation *entry;
    if (index < 0)
        return AM_ERR_BAD_ARG;
    if (index >= endpoint->translations && AM_SetNumTranslations(endpoint, index + 16) != AM_OK)
        return AM_ERR_RESOURCE;
    entry = &endpoint->table[index];
    if (entry->used)
        return AM_ERR_IN_USE;
    entry->used = 1;
    entry->name = name;
    entry->tag = tag;
    return AM_OK;
}

static inline int AM_MapAny(ea_t endpoint, int *index, en_t name, tag_t tag)
{
    int at = 0;
    while (at < endpoint->translations && endpoint->table[at].used)
        at++;
    *index = at;
    return AM_Map(endpoint, at, name, tag);
}

static inline int AM_GetTranslationInuse(ea_t endpoint, int index)
{
    return index >= 0 && index < endpoint->translations && endpoint->table[index].used ? AM_OK : AM_ERR_BAD_ARG;
}
static inline int AM_GetTranslationName(ea_t endpoint, int index, en_t *name)
{
    if (AM_GetTranslationInuse(endpoint, index) != AM_OK)
        return AM_ERR_BAD_ARG;
    *name = endpoint->table[index].name;
    return AM_OK;
}
static inline int AM_GetTranslationTag(ea_t endpoint, int index, tag_t *tag)
{
    if (AM_GetTranslationInuse(endpoint, index) != AM_OK)
        return AM_ERR_BAD_ARG;
    *tag = endpoint->table[index].tag;
    return AM_OK;
}

static inline int AM_FreeEndpoint(ea_t endpoint)
{
    int at, code;
    for (at = 0; at < endpoint->translations; at++)
        (void)AM_Unmap(endpoint, at);
    code = pulc_am_endpoint_close(endpoint->endpoint);
    free(endpoint->table);
    free(endpoint);
    return am_code_(code);
}

/* --- inside a handler ---------------------------------------------------------------------------------------------------- */

static inline int AM_GetSourceEndpoint(void *token, en_t *name)
{
    struct am_token *here = (struct am_token *)token;
    char text[64];
    unsigned number = 0;
    if (!here->call->token || pulc_am_source_name(here->call->token, text, sizeof text) != PULC_OK)
        return AM_ERR_RESOURCE;
    if (sscanf(text, "am-2 %u", &number) != 1)
        return AM_ERR_RESOURCE;
    *name = AM_Name(here->call->source, number);
    return AM_OK;
}
static inline int AM_GetDestEndpoint(void *token, ea_t *endpoint)
{
    *endpoint = ((struct am_token *)token)->endpoint;
    return AM_OK;
}
static inline int AM_GetMsgTag(void *token, tag_t *tag) { return AM_GetTag(((struct am_token *)token)->endpoint, tag); }

/* --- messages ------------------------------------------------------------------------------------------------------------ */

/* The peer of a translation, mapped now if it is not; NULL when the error handler has been told, or `*code` tells why. */
static inline pulc_am_peer *am_peer_(ea_t endpoint, int index, op_t kind, int *code)
{
    char text[32];
    struct am_translation *entry;
    *code = AM_OK;
    if (AM_GetTranslationInuse(endpoint, index) != AM_OK) {
        *code = AM_ERR_BAD_ARG;
        return NULL;
    }
    entry = &endpoint->table[index];
    if (entry->peer)
        return entry->peer;
    snprintf(text, sizeof text, "am-2 %u", (unsigned)entry->name.number);
    switch (pulc_am_map(endpoint->endpoint, endpoint->bundle->bundle, entry->name.rank, text, entry->tag,
                        (uint16_t)endpoint->credits, PULC_FOREVER, &entry->peer)) {
    case PULC_OK: return entry->peer;
    case PULC_ERR_TAG: am_error_(endpoint, EBADTAG, kind, NULL); break;
    case PULC_ERR_UNKNOWN_PORT: am_error_(endpoint, EBADENDPOINT, kind, NULL); break;
    case PULC_ERR_PEER_GONE: am_error_(endpoint, EUNREACHABLE, kind, NULL); break;
    case PULC_ERR_RANK: *code = AM_ERR_BAD_ARG; break;
    default: *code = AM_ERR_NOT_SENT; break;
    }
    entry->peer = NULL;
    return NULL;
}

static inline int am_request_(ea_t endpoint, int index, handler_t handler, int count, const int *a)
{
    uint64_t args[8];
    int at, code;
    pulc_am_peer *peer = am_peer_(endpoint, index, PULC_AM_SHORT, &code);
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return peer ? am_code_(pulc_am_request(peer, endpoint->bundle->bundle, (uint8_t)handler, args, (size_t)count, NULL)) : code;
}

static inline int am_request_i_(ea_t endpoint, int index, handler_t handler, const void *data, size_t bytes, int count,
                                const int *a)
{
    uint64_t args[8];
    int at, code;
    pulc_am_peer *peer = am_peer_(endpoint, index, PULC_AM_MEDIUM, &code);
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return peer ? am_code_(pulc_am_request_medium(peer, endpoint->bundle->bundle, (uint8_t)handler, args, (size_t)count, data,
                                                  bytes, NULL))
                : code;
}

static inline int am_request_xfer_(ea_t endpoint, int index, size_t offset, handler_t handler, const void *data, size_t bytes,
                                   int count, const int *a)
{
    uint64_t args[8];
    int at, code;
    pulc_am_peer *peer = am_peer_(endpoint, index, PULC_AM_LONG, &code);
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return peer ? am_code_(pulc_am_request_long(peer, endpoint->bundle->bundle, (uint8_t)handler, args, (size_t)count, offset,
                                                data, bytes, NULL))
                : code;
}

/* At most six arguments: two travel in a word. */
static inline int am_get_xfer_(ea_t endpoint, int index, size_t source, handler_t handler, size_t target, size_t bytes,
                               int count, const int *a)
{
    uint64_t args[8] = {0};
    int at, code;
    pulc_am_peer *peer = am_peer_(endpoint, index, PULC_AM_SHORT, &code);
    if (count > 6)
        return AM_ERR_BAD_ARG;
    args[0] = source;
    args[1] = target;
    args[2] = bytes;
    args[3] = (uint64_t)(uint8_t)handler | (uint64_t)count << 32;
    for (at = 0; at < count; at++)
        args[4 + at / 2] |= (uint64_t)(uint32_t)a[at] << (32 * (at % 2));
    return peer ? am_code_(pulc_am_request(peer, endpoint->bundle->bundle, AM_GET_, args, 4 + (size_t)(count + 1) / 2, NULL))
                : code;
}

static inline int am_reply_(void *token, handler_t handler, int count, const int *a)
{
    uint64_t args[8];
    int at;
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return am_code_(pulc_am_reply(((struct am_token *)token)->call->token, (uint8_t)handler, args, (size_t)count));
}

static inline int am_reply_i_(void *token, handler_t handler, const void *data, size_t bytes, int count, const int *a)
{
    uint64_t args[8];
    int at;
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return am_code_(pulc_am_reply_medium(((struct am_token *)token)->call->token, (uint8_t)handler, args, (size_t)count, data,
                                         bytes));
}

static inline int am_reply_xfer_(void *token, size_t offset, handler_t handler, const void *data, size_t bytes, int count,
                                 const int *a)
{
    uint64_t args[8];
    int at;
    for (at = 0; at < count; at++)
        args[at] = (uint64_t)a[at];
    return am_code_(pulc_am_reply_long(((struct am_token *)token)->call->token, (uint8_t)handler, args, (size_t)count, offset,
                                       data, bytes));
}

/* The numbered functions of AM-2, for 0 to 8 arguments. The asynchronous ones return when the data has left, which is allowed. */
#define AM_P0_
#define AM_P1_ , int a0
#define AM_P2_ AM_P1_, int a1
#define AM_P3_ AM_P2_, int a2
#define AM_P4_ AM_P3_, int a3
#define AM_P5_ AM_P4_, int a4
#define AM_P6_ AM_P5_, int a5
#define AM_P7_ AM_P6_, int a6
#define AM_P8_ AM_P7_, int a7
#define AM_L0_ 0
#define AM_L1_ a0
#define AM_L2_ AM_L1_, a1
#define AM_L3_ AM_L2_, a2
#define AM_L4_ AM_L3_, a3
#define AM_L5_ AM_L4_, a4
#define AM_L6_ AM_L5_, a5
#define AM_L7_ AM_L6_, a6
#define AM_L8_ AM_L7_, a7
#define AM_FUNCTIONS_(n)                                                                                                        \
    static inline int AM_Request##n(ea_t endpoint, int index, handler_t handler AM_P##n##_)                                     \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_request_(endpoint, index, handler, n, a);                                                                     \
    }                                                                                                                           \
    static inline int AM_RequestI##n(ea_t endpoint, int index, handler_t handler, void *data, size_t bytes AM_P##n##_)          \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_request_i_(endpoint, index, handler, data, bytes, n, a);                                                      \
    }                                                                                                                           \
    static inline int AM_RequestXfer##n(ea_t endpoint, int index, size_t offset, handler_t handler, void *data,                 \
                                        size_t bytes AM_P##n##_)                                                                \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_request_xfer_(endpoint, index, offset, handler, data, bytes, n, a);                                           \
    }                                                                                                                           \
    static inline int AM_RequestXferAsync##n(ea_t endpoint, int index, size_t offset, handler_t handler, void *data,            \
                                             size_t bytes AM_P##n##_)                                                           \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_request_xfer_(endpoint, index, offset, handler, data, bytes, n, a);                                           \
    }                                                                                                                           \
    static inline int AM_GetXfer##n(ea_t endpoint, int index, size_t source, handler_t handler, size_t target,                  \
                                    size_t bytes AM_P##n##_)                                                                    \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_get_xfer_(endpoint, index, source, handler, target, bytes, n, a);                                             \
    }                                                                                                                           \
    static inline int AM_Reply##n(void *token, handler_t handler AM_P##n##_)                                                    \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_reply_(token, handler, n, a);                                                                                 \
    }                                                                                                                           \
    static inline int AM_ReplyI##n(void *token, handler_t handler, void *data, size_t bytes AM_P##n##_)                         \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_reply_i_(token, handler, data, bytes, n, a);                                                                  \
    }                                                                                                                           \
    static inline int AM_ReplyXfer##n(void *token, size_t offset, handler_t handler, void *data, size_t bytes AM_P##n##_)       \
    {                                                                                                                           \
        const int a[] = {AM_L##n##_};                                                                                           \
        return am_reply_xfer_(token, offset, handler, data, bytes, n, a);                                                       \
    }

AM_FUNCTIONS_(0)
AM_FUNCTIONS_(1)
AM_FUNCTIONS_(2)
AM_FUNCTIONS_(3)
AM_FUNCTIONS_(4)
AM_FUNCTIONS_(5)
AM_FUNCTIONS_(6)
AM_FUNCTIONS_(7)
AM_FUNCTIONS_(8)

#ifdef __cplusplus
}
#endif
#endif
