/*
 * exchange.c: collective transfers in which ranks pass pieces to and from aggregators, round by round.
 *
 * In a round each aggregator has some units of the file. A write: ranks send it their pieces there, it puts them together and writes them in one call. A
 * read: ranks send what they want, it reads all of that in one call, and sends each rank its bytes.
 */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_WANTED = 1, TAG_DATA = 2 };

/* The pieces that go from one rank to one aggregator in one round, as a message: how many, the pieces, and for a write their bytes. */
struct message {
    int64_t *bytes;
    size_t room;
    int64_t count;
    int64_t data_bytes;
};

static struct piece *pieces_of(const struct message *message)
{
    return (struct piece *)(message->bytes + 1);
}

static char *data_of(const struct message *message)
{
    return (char *)(pieces_of(message) + message->count);
}

static int64_t message_bytes(int64_t count, int64_t data_bytes)
{
    return count == 0 ? 0 : (int64_t)sizeof(int64_t) + count * (int64_t)sizeof(struct piece) + data_bytes;
}

static int message_add(struct message *message, int64_t offset, int64_t length)
{
    struct piece *last;

    if (message->count > 0) {
        last = &pieces_of(message)[message->count - 1];
        if (last->offset + last->length == offset) {
            last->length += length;
            message->data_bytes += length;
            return MPI_SUCCESS;
        }
    }
    size_t needed = sizeof(int64_t) + (size_t)(message->count + 1) * sizeof(struct piece);
    if (needed > message->room) {
        size_t room = needed * 2 + 256;
        int64_t *grown = realloc(message->bytes, room);
        if (!grown)
            return MPI_ERR_NO_MEM;
        message->bytes = grown;
        message->room = room;
    }
    pieces_of(message)[message->count].offset = offset;
    pieces_of(message)[message->count].length = length;
    message->count++;
    message->data_bytes += length;
    return MPI_SUCCESS;
}

/* Where one rank is in its part. */
struct progress {
    struct cursor in_file;
    /* A piece that the end of a round has cut. */
    struct piece rest;
    /* Bytes of the memory that come before. */
    int64_t passed;
};

static int64_t aggregator_of(const struct plan *plan, int64_t offset)
{
    return offset / plan->unit_bytes % plan->aggregators;
}

/*
 * Calls `visit` for every piece of this rank below `end`, cut at the ends of units. `progress` moves on.
 */
static int each_piece(struct progress *progress, const struct plan *plan, int64_t end,
                      int (*visit)(void *state, int64_t aggregator, int64_t offset, int64_t length, int64_t passed), void *state)
{
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS) {
        if (progress->rest.length == 0)
            progress->rest = cursor_next(&progress->in_file, progress->in_file.left);
        int64_t offset = progress->rest.offset;
        if (progress->rest.length == 0 || offset >= end)
            break;
        int64_t unit_end = (offset / plan->unit_bytes + 1) * plan->unit_bytes;
        int64_t length = progress->rest.length < unit_end - offset ? progress->rest.length : unit_end - offset;
        code = visit(state, aggregator_of(plan, offset), offset, length, progress->passed);
        progress->passed += length;
        progress->rest.offset += length;
        progress->rest.length -= length;
    }
    return code;
}

static int visit_count(void *state, int64_t aggregator, int64_t offset, int64_t length, int64_t passed)
{
    struct message *messages = state;
    (void)passed;
    return message_add(&messages[aggregator], offset, length);
}

/* Copying between the memory of the program and the messages, in the same order as they were made. */
struct copying {
    const struct memory *memory;
    char **at;
    int out;
    /* Reads: the first byte that is not in the file, and how many bytes came before it. */
    int64_t end, got;
    int is_over;
};

static int visit_copy(void *state, int64_t aggregator, int64_t offset, int64_t length, int64_t passed)
{
    struct copying *copying = state;
    int64_t there = length;

    if (!copying->out) {
        if (offset + length > copying->end)
            there = offset < copying->end ? copying->end - offset : 0;
        if (!copying->is_over)
            copying->got += there;
        copying->is_over = copying->is_over || there < length;
    }
    if (there > 0)
        memory_copy(copying->memory, passed, there, copying->at[aggregator], copying->out);
    copying->at[aggregator] += length;
    return MPI_SUCCESS;
}

/* One rank's state of a two-phase transfer. */
struct exchange {
    struct transfer *transfer;
    struct plan plan;
    struct progress progress;
    /* To aggregators, and from ranks (only on an aggregator). */
    struct message *out, *in;
    int64_t *out_bytes, *in_bytes;
    MPI_Request *requests;
    int request_count;
    char *buffer;
    /* Replies to ranks, and from aggregators. */
    char **replies, **answers;
    int64_t done;
    int64_t end;
    int code;
};

static int exchange_open(struct exchange *exchange, struct transfer *transfer, const struct plan *plan)
{
    struct file *file = transfer->file;
    size_t ranks = (size_t)file->ranks;

    memset(exchange, 0, sizeof *exchange);
    exchange->transfer = transfer;
    exchange->plan = *plan;
    exchange->end = INT64_MAX;
    exchange->progress.in_file = cursor_at(&file->tile, file->displacement, transfer->position, transfer->memory.bytes);
    exchange->out = calloc(ranks, sizeof *exchange->out);
    exchange->in = calloc(ranks, sizeof *exchange->in);
    exchange->out_bytes = calloc(ranks, sizeof *exchange->out_bytes);
    exchange->in_bytes = calloc(ranks, sizeof *exchange->in_bytes);
    exchange->requests = calloc(2 * ranks, sizeof *exchange->requests);
    exchange->replies = calloc(ranks, sizeof *exchange->replies);
    exchange->answers = calloc(ranks, sizeof *exchange->answers);
    if (file->rank < plan->aggregators)
        exchange->buffer = malloc((size_t)(plan->units * plan->unit_bytes));
    int is_there = exchange->out && exchange->in && exchange->out_bytes && exchange->in_bytes && exchange->requests &&
                   exchange->replies && exchange->answers && (exchange->buffer || file->rank >= plan->aggregators);
    return is_there ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static void exchange_close(struct exchange *exchange)
{
    for (int rank = 0; rank < exchange->transfer->file->ranks && exchange->out && exchange->in; rank++) {
        free(exchange->out[rank].bytes);
        free(exchange->in[rank].bytes);
    }
    free(exchange->out);
    free(exchange->in);
    free(exchange->out_bytes);
    free(exchange->in_bytes);
    free(exchange->requests);
    free(exchange->replies);
    free(exchange->answers);
    free(exchange->buffer);
}

/* Lists what this rank has in the round, by aggregator; for writes with the bytes. */
static int fill_messages(struct exchange *exchange, int64_t end)
{
    const struct plan *plan = &exchange->plan;
    struct progress before = exchange->progress;
    int is_write = exchange->transfer->is_write;
    int code;

    for (int64_t n = 0; n < plan->aggregators; n++)
        exchange->out[n].count = exchange->out[n].data_bytes = 0;
    code = each_piece(&exchange->progress, plan, end, visit_count, exchange->out);
    for (int64_t n = 0; n < plan->aggregators && code == MPI_SUCCESS; n++) {
        struct message *message = &exchange->out[n];
        size_t needed = (size_t)message_bytes(message->count, is_write ? message->data_bytes : 0);
        exchange->out_bytes[n] = (int64_t)needed;
        if (needed > message->room) {
            int64_t *grown = realloc(message->bytes, needed);
            if (!grown)
                return MPI_ERR_NO_MEM;
            message->bytes = grown;
            message->room = needed;
        }
        if (message->count > 0)
            message->bytes[0] = message->count;
        exchange->answers[n] = is_write && message->count > 0 ? data_of(message) : NULL;
    }
    if (code != MPI_SUCCESS || !is_write)
        return code;
    struct copying copying = {.memory = &exchange->transfer->memory, .at = exchange->answers, .out = 1};
    return each_piece(&before, plan, end, visit_copy, &copying);
}

/* Sends the messages of the round and receives those for this rank; a message to itself is not sent. */
static int pass_messages(struct exchange *exchange)
{
    struct file *file = exchange->transfer->file;
    int code = MPI_SUCCESS;

    memset(&exchange->out_bytes[exchange->plan.aggregators], 0,
           (size_t)(file->ranks - exchange->plan.aggregators) * sizeof(int64_t));
    double begun = now();
    PMPI_Alltoall(exchange->out_bytes, 1, MPI_INT64_T, exchange->in_bytes, 1, MPI_INT64_T, file->comm);
    tally_of(file, exchange->transfer->is_write)->wait += now() - begun;
    exchange->request_count = 0;
    for (int rank = 0; rank < file->ranks; rank++) {
        struct message *message = &exchange->in[rank];
        size_t needed = (size_t)exchange->in_bytes[rank];
        message->count = 0;
        if (needed == 0 || rank == file->rank)
            continue;
        if (needed > message->room) {
            free(message->bytes);
            message->room = needed;
            message->bytes = malloc(needed);
            if (!message->bytes)
                return MPI_ERR_NO_MEM;
        }
        PMPI_Irecv(message->bytes, (int)needed, MPI_BYTE, rank, TAG_WANTED, file->comm,
                   &exchange->requests[exchange->request_count++]);
    }
    for (int rank = 0; rank < exchange->plan.aggregators; rank++)
        if (exchange->out_bytes[rank] > 0 && rank != file->rank)
            PMPI_Isend(exchange->out[rank].bytes, (int)exchange->out_bytes[rank], MPI_BYTE, rank, TAG_WANTED, file->comm,
                       &exchange->requests[exchange->request_count++]);
    PMPI_Waitall(exchange->request_count, exchange->requests, MPI_STATUSES_IGNORE);
    for (int rank = 0; rank < file->ranks; rank++)
        if (exchange->in_bytes[rank] > 0 && rank != file->rank)
            exchange->in[rank].count = exchange->in[rank].bytes[0];
    return code;
}

/* The message of a rank to this aggregator. */
static const struct message *received(const struct exchange *exchange, int rank)
{
    return rank == exchange->transfer->file->rank ? &exchange->out[rank] : &exchange->in[rank];
}

/* Where a byte of the file is in the buffer of its aggregator. */
static char *place_in_buffer(const struct exchange *exchange, int64_t offset, int64_t first_unit)
{
    const struct plan *plan = &exchange->plan;
    int64_t unit = (offset / plan->unit_bytes - first_unit) / plan->aggregators;
    return exchange->buffer + unit * plan->unit_bytes + offset % plan->unit_bytes;
}

static int by_offset(const void *a, const void *b)
{
    const struct ccpfs_part *one = a, *other = b;
    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

/* All pieces that ranks have sent, sorted, those that touch or overlap joined. To be freed. */
static struct ccpfs_part *join_pieces(const struct exchange *exchange, int64_t first_unit, size_t *count)
{
    size_t total = 0, joined = 0;
    int is_sorted = 1;
    struct ccpfs_part *parts;

    for (int rank = 0; rank < exchange->transfer->file->ranks; rank++)
        total += (size_t)received(exchange, rank)->count;
    parts = malloc((total + 1) * sizeof *parts);
    *count = 0;
    if (!parts)
        return NULL;
    for (int rank = 0; rank < exchange->transfer->file->ranks; rank++) {
        const struct message *message = received(exchange, rank);
        for (int64_t i = 0; i < message->count; i++) {
            struct piece piece = pieces_of(message)[i];
            is_sorted = is_sorted && (joined == 0 || parts[joined - 1].offset <= (uint64_t)piece.offset);
            parts[joined++] = (struct ccpfs_part){.offset = (uint64_t)piece.offset,
                                                  .memory = place_in_buffer(exchange, piece.offset, first_unit),
                                                  .length = (size_t)piece.length};
        }
    }
    if (!is_sorted)
        qsort(parts, total, sizeof *parts, by_offset);
    joined = 0;
    for (size_t i = 0; i < total; i++) {
        struct ccpfs_part *last = joined ? &parts[joined - 1] : NULL;
        /* Only within a unit do bytes that touch in the file touch in the buffer. */
        int touches = last && parts[i].offset <= last->offset + last->length &&
                      (char *)parts[i].memory == (char *)last->memory + (parts[i].offset - last->offset);
        if (!touches) {
            parts[joined++] = parts[i];
        } else if (parts[i].offset + parts[i].length > last->offset + last->length) {
            last->length = parts[i].offset + parts[i].length - last->offset;
        }
    }
    *count = joined;
    return parts;
}

/* Copies between the messages of the ranks and the buffer. */
static void scatter_messages(struct exchange *exchange, int64_t first_unit, int is_write)
{
    for (int rank = 0; rank < exchange->transfer->file->ranks; rank++) {
        const struct message *message = received(exchange, rank);
        char *at = is_write && message->count > 0 ? data_of(message) : exchange->replies[rank];
        for (int64_t i = 0; i < message->count; i++) {
            struct piece piece = pieces_of(message)[i];
            char *place = place_in_buffer(exchange, piece.offset, first_unit);
            memcpy(is_write ? place : at, is_write ? at : place, (size_t)piece.length);
            at += piece.length;
        }
    }
}

/* The aggregator's part of a round: one call of the library. Reads tell the first byte that is not there. */
static int aggregate(struct exchange *exchange, int64_t first_unit, int64_t *end)
{
    struct transfer *transfer = exchange->transfer;
    size_t count;
    int64_t got = 0, wanted = 0;
    double begun = now();
    int code = MPI_SUCCESS;
    struct ccpfs_part *parts = join_pieces(exchange, first_unit, &count);

    *end = INT64_MAX;
    if (!parts)
        return MPI_ERR_NO_MEM;
    if (transfer->is_write)
        scatter_messages(exchange, first_unit, 1);
    tally_of(transfer->file, transfer->is_write)->assemble += now() - begun;
    if (transfer->is_write && locks_ahead(transfer->file))
        for (size_t i = 0; i < count; i++)
            lock_ahead(transfer->file, (int64_t)parts[i].offset, exchange->plan.unit_bytes, exchange->plan.aggregators);
    if (count > 0)
        code = parts_call(transfer->file, transfer->is_write, 0, parts, count, &got);
    for (size_t i = 0; i < count && code == MPI_SUCCESS; i++) {
        int64_t length = (int64_t)parts[i].length;
        if (wanted + length > got && *end == INT64_MAX)
            *end = (int64_t)parts[i].offset + (got - wanted);
        wanted += length;
    }
    free(parts);
    return code;
}

/* Reads: what was found goes back to the ranks. A reply begins with the end of the file as this aggregator saw it. */
static int pass_replies(struct exchange *exchange, int64_t first_unit, int64_t end, int64_t code)
{
    struct file *file = exchange->transfer->file;
    int64_t worst = MPI_SUCCESS;

    exchange->request_count = 0;
    for (int rank = 0; rank < file->ranks; rank++) {
        const struct message *message = received(exchange, rank);
        int64_t bytes = 0;
        for (int64_t i = 0; i < message->count; i++)
            bytes += pieces_of(message)[i].length;
        free(exchange->replies[rank]);
        exchange->replies[rank] = message->count > 0 ? malloc((size_t)bytes + 2 * sizeof(int64_t)) : NULL;
        if (message->count == 0)
            continue;
        if (!exchange->replies[rank])
            return MPI_ERR_NO_MEM;
        memcpy(exchange->replies[rank], &end, sizeof end);
        memcpy(exchange->replies[rank] + sizeof end, &code, sizeof code);
        exchange->replies[rank] += 2 * sizeof(int64_t);
        exchange->in_bytes[rank] = bytes + 2 * (int64_t)sizeof(int64_t);
    }
    scatter_messages(exchange, first_unit, 0);
    for (int rank = 0; rank < file->ranks; rank++)
        if (exchange->replies[rank])
            exchange->replies[rank] -= 2 * sizeof(int64_t);
    for (int64_t n = 0; n < exchange->plan.aggregators; n++) {
        const struct message *message = &exchange->out[n];
        exchange->answers[n] = NULL;
        if (message->count == 0)
            continue;
        if (n == file->rank) {
            exchange->answers[n] = exchange->replies[n];
            exchange->replies[n] = NULL;
            continue;
        }
        int64_t bytes = message->data_bytes + 2 * (int64_t)sizeof(int64_t);
        exchange->answers[n] = malloc((size_t)bytes);
        if (!exchange->answers[n])
            return MPI_ERR_NO_MEM;
        PMPI_Irecv(exchange->answers[n], (int)bytes, MPI_BYTE, (int)n, TAG_DATA, file->comm,
                   &exchange->requests[exchange->request_count++]);
    }
    for (int rank = 0; rank < file->ranks; rank++)
        if (exchange->replies[rank] && rank != file->rank)
            PMPI_Isend(exchange->replies[rank], (int)exchange->in_bytes[rank], MPI_BYTE, rank, TAG_DATA, file->comm,
                       &exchange->requests[exchange->request_count++]);
    PMPI_Waitall(exchange->request_count, exchange->requests, MPI_STATUSES_IGNORE);
    for (int rank = 0; rank < file->ranks; rank++) {
        free(exchange->replies[rank]);
        exchange->replies[rank] = NULL;
    }
    for (int64_t n = 0; n < exchange->plan.aggregators; n++) {
        int64_t told[2];
        if (!exchange->answers[n])
            continue;
        memcpy(told, exchange->answers[n], sizeof told);
        exchange->end = told[0] < exchange->end ? told[0] : exchange->end;
        worst = told[1] > worst ? told[1] : worst;
    }
    return (int)worst;
}

/* Copies what came back into the memory of the program. */
static void take_answers(struct exchange *exchange, struct progress *before, int64_t round_end)
{
    size_t ranks = (size_t)exchange->transfer->file->ranks;
    char **at = calloc(ranks, sizeof *at);
    struct copying copying = {.memory = &exchange->transfer->memory, .at = at, .end = exchange->end};

    if (at) {
        for (int64_t n = 0; n < exchange->plan.aggregators; n++)
            at[n] = exchange->answers[n] ? exchange->answers[n] + 2 * sizeof(int64_t) : NULL;
        each_piece(before, &exchange->plan, round_end, visit_copy, &copying);
        exchange->done += copying.got;
    } else {
        exchange->code = MPI_ERR_NO_MEM;
    }
    for (int64_t n = 0; n < exchange->plan.aggregators; n++) {
        free(exchange->answers[n]);
        exchange->answers[n] = NULL;
    }
    free(at);
}

static void count_aggregators(struct exchange *exchange)
{
    struct file *file = exchange->transfer->file;
    struct tally *tally = tally_of(file, exchange->transfer->is_write);
    int64_t active = 0;

    /* What each rank knows by itself: to how many aggregators it has something to say. */
    for (int64_t n = 0; n < exchange->plan.aggregators; n++)
        active += exchange->out[n].count > 0;
    if (active == 0)
        return;
    if (active == exchange->plan.aggregators)
        tally->aggregators_all++;
    else if (active == 1)
        tally->aggregators_one++;
    else if (active * 2 <= exchange->plan.aggregators)
        tally->aggregators_half++;
    else
        tally->aggregators_most++;
}

static void one_round(struct exchange *exchange, int64_t round)
{
    struct transfer *transfer = exchange->transfer;
    struct tally *tally = tally_of(transfer->file, transfer->is_write);
    const struct plan *plan = &exchange->plan;
    int64_t each = plan->units * plan->aggregators;
    int64_t first_unit = plan->first_unit + round * each;
    int64_t round_end = (first_unit + each) * plan->unit_bytes;
    struct progress before = exchange->progress;
    int64_t end = INT64_MAX;
    int code;

    /* The first unit of this aggregator in the round; unit u belongs to aggregator u mod n. */
    int64_t own_unit = first_unit + ((transfer->file->rank - first_unit) % plan->aggregators + plan->aggregators) % plan->aggregators;
    double begun = now();
    code = fill_messages(exchange, round_end);
    count_aggregators(exchange);
    if (code == MPI_SUCCESS)
        code = pass_messages(exchange);
    tally->exchange += now() - begun;
    if (code == MPI_SUCCESS && transfer->file->rank < plan->aggregators)
        code = aggregate(exchange, own_unit, &end);
    if (!transfer->is_write) {
        begun = now();
        code = pass_replies(exchange, own_unit, end, code);
        take_answers(exchange, &before, round_end);
        tally->exchange += now() - begun;
    }
    exchange->code = exchange->code == MPI_SUCCESS ? code : exchange->code;
}

int exchange_all(struct transfer *transfer, const struct plan *plan, int64_t *done)
{
    struct exchange exchange;
    int code = agreed(transfer->file, exchange_open(&exchange, transfer, plan));

    tally_of(transfer->file, transfer->is_write)->two_phase_calls++;
    for (int64_t round = 0; round < plan->rounds && code == MPI_SUCCESS; round++)
        one_round(&exchange, round);
    if (code == MPI_SUCCESS) {
        code = agreed(transfer->file, exchange.code);
        *done = transfer->is_write && code == MPI_SUCCESS ? transfer->memory.bytes : exchange.done;
    }
    exchange_close(&exchange);
    return code;
}
