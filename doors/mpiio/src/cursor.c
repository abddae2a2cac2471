/*
 * cursor.c: places in copies of a datatype that follow each other: in the view of a file, or in memory.
 */
#include "layer.h"

struct cursor cursor_at(const struct flat *flat, int64_t base, int64_t position, int64_t length)
{
    struct cursor cursor = {.flat = flat, .base = base, .left = length};
    size_t low = 0, high = flat->count;
    int64_t rest;

    if (flat->bytes == 0) {
        cursor.left = 0;
        return cursor;
    }
    cursor.copy = position / flat->bytes;
    rest = position % flat->bytes;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (flat->before[middle] <= rest)
            low = middle;
        else
            high = middle;
    }
    cursor.piece = low;
    cursor.inside = rest - flat->before[low];
    return cursor;
}

struct piece cursor_next(struct cursor *cursor, int64_t most)
{
    const struct flat *flat = cursor->flat;
    struct piece next = {0, 0};

    if (most > cursor->left)
        most = cursor->left;
    while (next.length < most) {
        const struct piece *piece = &flat->pieces[cursor->piece];
        int64_t start = cursor->base + cursor->copy * flat->extent + piece->offset + cursor->inside;
        int64_t length = piece->length - cursor->inside;

        if (next.length == 0)
            next.offset = start;
        else if (next.offset + next.length != start)
            break;
        if (flat->count == 1 && piece->length == flat->extent) {
            /* Copies touch: all of them are one piece. */
            length = most - next.length;
            cursor->copy += (cursor->inside + length) / flat->extent;
            cursor->inside = (cursor->inside + length) % flat->extent;
        } else if (length > most - next.length) {
            length = most - next.length;
            cursor->inside += length;
        } else {
            cursor->inside = 0;
            if (++cursor->piece == flat->count) {
                cursor->piece = 0;
                cursor->copy++;
            }
        }
        next.length += length;
    }
    cursor->left -= next.length;
    return next;
}

int cursor_is_contiguous(const struct cursor *cursor)
{
    struct cursor trial = *cursor;
    cursor_next(&trial, trial.left);
    return trial.left == 0;
}
