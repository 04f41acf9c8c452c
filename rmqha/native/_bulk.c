/* The bulk kernel, compiled. It does the same as its twin, rmqha/store/bulk/bulk_python.py, but without the GIL.
 * bulk.py in that folder checks the arguments and documents the functions; bulk_layout.py has the tables of the rows.
 *
 * The bytes of a log are untrusted, and another thread may write them while they are read. So a length is loaded once,
 * compared with the rest of the span, and only then used. Loading it a second time after the check could return another
 * value (LOADED_ONCE keeps the compiler from doing that). No byte outside the span is accessed.
 */
#include "native.h"
#include "crc32.h"

#define MAX_LIMIT (1 << 24)
#define KEYS_PER_RECORD 8
#define UNIT_SIZE 20
#define INDEX_HEADER 40
#define SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"

/* The values of Stop in bulk_layout.py. */
enum { GOOD = -1, END, LIMIT, ODD, BLANK, UNWRITTEN, BAD_MAGIC, TRUNCATED, BAD_CRC, LENGTH_MISMATCH };

typedef struct {
    int64_t offset, queue_offset, tags_code, store_time;
    int32_t size, queue_id, topic, sys_flag;
} record_row;
typedef struct { int64_t queue_offset, store_time; int32_t topic, queue_id, first_unit, count; } run_row;
typedef struct { int64_t offset, store_time; int32_t hash, record; } key_row;
_Static_assert(sizeof(record_row) == 48 && sizeof(run_row) == 32 && sizeof(key_row) == 24, "rows have no padding");

/* -- bytes -- */

#if defined(__GNUC__)
#define LOADED_ONCE(value) __asm__ volatile("" : "+r"(value))
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define LOADED_ONCE(value) ((void)0)
#define PREFETCH(address) ((void)0)
#endif

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t value = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    LOADED_ONCE(value);
    return value;
}

static inline int32_t signed32(uint32_t value)
{
    return value & 0x80000000u ? (int32_t)(value & 0x7FFFFFFFu) + INT32_MIN : (int32_t)value;
}

static inline int32_t int32_at(const uint8_t *p) { return signed32(get32(p)); }

static inline int64_t int64_at(const uint8_t *p)
{
    uint64_t value = (uint64_t)get32(p) << 32 | get32(p + 4);
    return value >> 63 ? (int64_t)(value & INT64_MAX) + INT64_MIN : (int64_t)value;
}

/* -- text -- */

typedef struct { const uint8_t *at; int64_t length; } text; /* `at` is NULL if there is none */

/* Continue Java's String.hashCode with the UTF-16 units of a text. Return 0 if the text is not UTF-8. */
static int hash_text(const uint8_t *p, int64_t length, uint32_t *hash)
{
    uint32_t h = *hash;
    int64_t at = 0;
    while (at < length) {
        if (length - at >= 4) {
            uint32_t a = p[at], b = p[at + 1], c = p[at + 2], d = p[at + 3];
            if ((a | b | c | d) < 0x80) {
                h = h * 923521u + a * 29791u + b * 961u + c * 31u + d;
                at += 4;
                continue;
            }
        }
        uint32_t unit = p[at];
        if (unit < 0x80) {
            at++;
        } else {
            int used = utf8_sequence(p + at, length - at, &unit);
            if (used < 0)
                return 0;
            at += used;
            if (unit >= 0x10000) {
                h = h * 31u + (0xD800u + ((unit - 0x10000) >> 10));
                unit = 0xDC00u + ((unit - 0x10000) & 0x3FF);
            }
        }
        h = h * 31u + unit;
    }
    *hash = h;
    return 1;
}

static int32_t index_hash(uint32_t hash)
{
    return (int32_t)((hash & 0x80000000u ? 0u - hash : hash) & 0x7FFFFFFFu);
}

/* Parse like Java's Integer.parseInt. Return 0 if the text is not a number. */
static int parse_level(text value, int64_t *level)
{
    int64_t at = 0, number = 0;
    int negative = value.length > 0 && value.at[0] == '-';
    if (negative || (value.length > 0 && value.at[0] == '+'))
        at = 1;
    if (value.length - at < 1 || value.length - at > 10)
        return 0;
    for (; at < value.length; at++) {
        uint8_t digit = value.at[at];
        if (digit < '0' || digit > '9')
            return 0;
        number = number * 10 + (digit - '0');
    }
    *level = negative ? -number : number;
    return *level >= INT32_MIN && *level <= INT32_MAX;
}

/* -- one record -- */

typedef struct {
    int64_t queue_offset, physical_offset, store_time;
    int32_t size, queue_id;
    uint32_t sys_flag;
    text topic, properties;
} record;

typedef struct { text tags, keys, uniq_key, delay, multi_dispatch; } named;

/* Check the record in the `room` bytes at p. Return GOOD, or why there is no good record. found->size is then the
 * result of the single-record check. */
static int look(const uint8_t *p, int64_t room, int check_crc, record *found)
{
    found->size = -1;
    if (room < END_FILE_MIN_BLANK_LENGTH)
        return TRUNCATED;
    uint32_t magic = get32(p + MESSAGE_MAGIC_CODE_POSITION);
    if (magic != MESSAGE_MAGIC_CODE) {
        if (magic != BLANK_MAGIC_CODE)
            return magic ? BAD_MAGIC : UNWRITTEN;
        found->size = 0;
        return BLANK;
    }
    if (room < HEAD_LENGTH)
        return TRUNCATED;
    found->sys_flag = get32(p + SYSFLAG_POSITION);
    int64_t born = found->sys_flag & BORNHOST_V6_FLAG ? MORE_IN_V6 : 0;
    int64_t head = HEAD_LENGTH + born + (found->sys_flag & STOREHOSTADDRESS_V6_FLAG ? MORE_IN_V6 : 0);
    if (room < head)
        return TRUNCATED;
    int32_t stored_body_length = int32_at(p + head - (HEAD_LENGTH - BODY_LENGTH_POSITION));
    int64_t body_length = stored_body_length > 0 ? stored_body_length : 0;
    int64_t topic_at = head + body_length;
    if (topic_at + LENGTHS_SIZE > room)
        return TRUNCATED;
    if (check_crc && body_length > 0
            && (crc32_of(p + head, body_length) & CRC_MASK) != get32(p + BODY_CRC_POSITION))
        return BAD_CRC;
    uint32_t topic_length = p[topic_at];
    LOADED_ONCE(topic_length);
    int64_t properties_at = topic_at + LENGTHS_SIZE + topic_length;
    if (topic_length > MAX_TOPIC_LENGTH || properties_at > room)
        return TRUNCATED;
    uint32_t properties_length = (uint32_t)p[properties_at - 2] << 8 | p[properties_at - 1];
    LOADED_ONCE(properties_length);
    int properties_negative = properties_length > MAX_PROPERTIES_LENGTH;
    int64_t end = properties_at + (properties_negative ? 0 : properties_length);
    if (end > room)
        return TRUNCATED;
    int32_t total_size = int32_at(p);
    if (total_size != end || stored_body_length < 0 || properties_negative) {
        found->size = total_size > 0 ? total_size : -1;
        return LENGTH_MISMATCH;
    }
    found->size = total_size;
    found->queue_id = int32_at(p + QUEUE_ID_POSITION);
    found->queue_offset = int64_at(p + QUEUE_OFFSET_POSITION);
    found->physical_offset = int64_at(p + PHYSICAL_OFFSET_POSITION);
    found->store_time = int64_at(p + STORE_TIMESTAMP_POSITION + born);
    found->topic = (text){p + topic_at + 1, topic_length};
    found->properties = (text){p + properties_at, properties_length};
    return GOOD;
}

static void name_property(const uint8_t *name, int64_t length, text value, named *found)
{
    switch (length) {
    case 4:
        if (memcmp(name, "TAGS", 4) == 0) found->tags = value;
        else if (memcmp(name, "KEYS", 4) == 0) found->keys = value;
        break;
    case 5:
        if (memcmp(name, "DELAY", 5) == 0) found->delay = value;
        break;
    case 8:
        if (memcmp(name, "UNIQ_KEY", 8) == 0) found->uniq_key = value;
        break;
    case 20:
        if (memcmp(name, "INNER_MULTI_DISPATCH", 20) == 0) found->multi_dispatch = value;
        break;
    }
}

/* Properties are: name 1 value 2 name 1 value ... Entries without a name, separator or value are ignored. The last
 * entry of a name wins. */
static void find_properties(text all, named *found)
{
    memset(found, 0, sizeof *found);
    int64_t at = 0;
    while (at < all.length) {
        const uint8_t *entry = all.at + at, *separator;
        const uint8_t *stop = memchr(entry, 2, (size_t)(all.length - at));
        int64_t length = stop ? stop - entry : all.length - at;
        separator = memchr(entry, 1, (size_t)length);
        if (separator && separator > entry && separator - entry + 1 < length)
            name_property(entry, separator - entry, (text){separator + 1, length - (separator - entry) - 1}, found);
        at += length + 1;
    }
}

static int is_scheduled(const record *found)
{
    return found->topic.length == sizeof SCHEDULE_TOPIC - 1
        && memcmp(found->topic.at, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1) == 0;
}

/* -- growing arrays, and a hash table of numbered items on top of one -- */

typedef struct { char *data; size_t count, room, width; } vector;

static void *vector_add(vector *v)
{
    if (v->count == v->room) {
        size_t room = v->room ? v->room * 2 : 64;
        char *data = PyMem_RawRealloc(v->data, room * v->width);
        if (!data)
            return NULL;
        v->data = data, v->room = room;
    }
    return v->data + v->count++ * v->width;
}

typedef struct { uint32_t hash, head; int64_t count, size; uint8_t length, name[MAX_TOPIC_LENGTH]; } topic_item;
typedef struct { uint32_t hash; int32_t topic, queue_id, run; int64_t queue_offset; } queue_item;

typedef struct { vector items; int32_t *slots; uint32_t size; } table; /* each item begins with its hash */

static uint32_t table_hash_at(const table *t, int32_t number)
{
    uint32_t hash;
    memcpy(&hash, t->items.data + (size_t)number * t->items.width, sizeof hash);
    return hash;
}

/* Append an item whose bytes are not set. Return NULL if out of memory. */
static void *table_add(table *t, uint32_t hash)
{
    if (t->items.count * 2 >= t->size) {
        uint32_t size = t->size ? t->size * 2 : 64;
        int32_t *slots = PyMem_RawMalloc(size * sizeof *slots);
        if (!slots)
            return NULL;
        memset(slots, 0xFF, size * sizeof *slots);
        for (size_t number = 0; number < t->items.count; number++) {
            uint32_t slot = table_hash_at(t, (int32_t)number) & (size - 1);
            while (slots[slot] >= 0)
                slot = (slot + 1) & (size - 1);
            slots[slot] = (int32_t)number;
        }
        PyMem_RawFree(t->slots);
        t->slots = slots, t->size = size;
    }
    int32_t number = (int32_t)t->items.count;
    void *item = vector_add(&t->items);
    if (item) {
        uint32_t slot = hash & (t->size - 1);
        while (t->slots[slot] >= 0)
            slot = (slot + 1) & (t->size - 1);
        t->slots[slot] = number;
    }
    return item;
}

/* -- a span -- */

typedef struct {
    const uint8_t *data;
    int64_t start, end, file_from_offset, limit;
    int check_crc, multi_dispatch;
    const int64_t *delays;
    int64_t delay_count; /* -1: without a schedule */
    int64_t count, position;
    int stop;
    int32_t size;
    int no_memory;
    /* for a scan */
    uint8_t *records; /* the rows, with space for as many as the span can have */
    int32_t *run_of; /* of each record, -1 for none */
    vector runs, keys;
    table topics, queues;
    int32_t last_topic;
} span;

static void span_walk(span *s)
{
    record found;
    s->position = s->start;
    s->stop = END;
    while (s->position < s->end) {
        s->stop = look(s->data + s->position, s->end - s->position, s->check_crc, &found);
        if (s->stop == GOOD && s->file_from_offset >= 0 && (found.physical_offset != s->file_from_offset + s->position
                || (s->check_crc && found.queue_offset < 0))) {
            s->stop = ODD;
            found.size = 0;
        }
        if (s->stop != GOOD) {
            s->size = found.size;
            return;
        }
        s->stop = END;
        s->position += found.size;
        s->count++;
    }
}

/* Return the number of a topic, a new one for a new topic; -1 if it is not UTF-8 or if out of memory. */
static int32_t span_topic(span *s, text topic)
{
    uint8_t name[MAX_TOPIC_LENGTH];
    memcpy(name, topic.at, (size_t)topic.length);
    topic_item *items = (topic_item *)s->topics.items.data, *item;
    if (s->last_topic >= 0) {
        item = items + s->last_topic;
        if (item->length == topic.length && memcmp(item->name, name, (size_t)topic.length) == 0)
            return s->last_topic;
    }
    uint32_t hash = 2166136261u, head = 0;
    for (int64_t at = 0; at < topic.length; at++)
        hash = (hash ^ name[at]) * 16777619u;
    if (s->topics.size)
        for (uint32_t slot = hash & (s->topics.size - 1); s->topics.slots[slot] >= 0;
             slot = (slot + 1) & (s->topics.size - 1)) {
            item = items + s->topics.slots[slot];
            if (item->hash == hash && item->length == topic.length
                    && memcmp(item->name, name, (size_t)topic.length) == 0)
                return s->last_topic = s->topics.slots[slot];
        }
    if (!hash_text(name, topic.length, &head))
        return -1;
    item = table_add(&s->topics, hash);
    if (!item) {
        s->no_memory = 1;
        return -1;
    }
    memset(item, 0, sizeof *item);
    item->hash = hash;
    item->head = head * 31u + '#';
    item->length = (uint8_t)topic.length;
    memcpy(item->name, name, (size_t)topic.length);
    return s->last_topic = (int32_t)(s->topics.items.count - 1);
}

static queue_item *span_queue(span *s, int32_t topic, int32_t queue_id)
{
    uint32_t hash = ((uint32_t)topic * 0x9E3779B1u ^ (uint32_t)queue_id) * 0x85EBCA6Bu;
    hash ^= hash >> 15;
    queue_item *items = (queue_item *)s->queues.items.data, *item;
    if (s->queues.size)
        for (uint32_t slot = hash & (s->queues.size - 1); s->queues.slots[slot] >= 0;
             slot = (slot + 1) & (s->queues.size - 1)) {
            item = items + s->queues.slots[slot];
            if (item->topic == topic && item->queue_id == queue_id)
                return item;
        }
    item = table_add(&s->queues, hash);
    if (item)
        *item = (queue_item){hash, topic, queue_id, -1, 0};
    return item;
}

/* Return the run of a unit: its queue's last one, or a new one if the unit does not continue it; -1: out of memory. */
static int32_t span_run(span *s, const record *found, int32_t topic)
{
    queue_item *queue = span_queue(s, topic, found->queue_id);
    if (!queue)
        return -1;
    run_row *run;
    if (queue->run >= 0 && queue->queue_offset != INT64_MAX && queue->queue_offset + 1 == found->queue_offset) {
        run = (run_row *)s->runs.data + queue->run;
    } else {
        run = vector_add(&s->runs);
        if (!run)
            return -1;
        *run = (run_row){found->queue_offset, 0, topic, found->queue_id, 0, 0};
        queue->run = (int32_t)(s->runs.count - 1);
    }
    queue->queue_offset = found->queue_offset;
    run->store_time = found->store_time;
    run->count++;
    return queue->run;
}

static int span_key(span *s, text key, uint32_t head, int64_t offset, int64_t store_time)
{
    if (!hash_text(key.at, key.length, &head))
        return ODD;
    key_row *row = vector_add(&s->keys);
    if (!row) {
        s->no_memory = 1;
        return ODD;
    }
    *row = (key_row){offset, store_time, index_hash(head), (int32_t)s->count};
    return GOOD;
}

static int span_keys(span *s, const named *properties, uint32_t head, int64_t offset, int64_t store_time)
{
    if (properties->uniq_key.at && span_key(s, properties->uniq_key, head, offset, store_time) != GOOD)
        return ODD;
    const uint8_t *keys = properties->keys.at;
    for (int64_t at = 0; keys && at < properties->keys.length; at++) {
        const uint8_t *space = memchr(keys + at, ' ', (size_t)(properties->keys.length - at));
        int64_t length = space ? space - (keys + at) : properties->keys.length - at;
        if (length > 0 && span_key(s, (text){keys + at, length}, head, offset, store_time) != GOOD)
            return ODD;
        at += length;
    }
    return GOOD;
}

/* Set the tags code of a record. Return GOOD or ODD. */
static int tags_code_of(const span *s, const record *found, const named *properties, int64_t *tags_code)
{
    uint32_t hash = 0;
    int64_t level = 0;
    int scheduled = s->delay_count >= 0 && properties->delay.at && is_scheduled(found);
    if (scheduled && !parse_level(properties->delay, &level))
        return ODD;
    if (properties->tags.at && !hash_text(properties->tags.at, properties->tags.length, &hash))
        return ODD;
    *tags_code = signed32(hash);
    if (level > s->delay_count)
        level = s->delay_count;
    if (level > 0) {
        int64_t delay = s->delays[level - 1];
        if (delay > 0 ? found->store_time > INT64_MAX - delay : found->store_time < INT64_MIN - delay)
            return ODD;
        *tags_code = found->store_time + delay;
    }
    return GOOD;
}

static int span_add(span *s, const record *found)
{
    named properties;
    int64_t tags_code, offset = s->file_from_offset + s->position;
    size_t keys_before = s->keys.count;
    find_properties(found->properties, &properties);
    if (tags_code_of(s, found, &properties, &tags_code) != GOOD)
        return ODD;
    if (found->physical_offset != offset || (s->multi_dispatch && properties.multi_dispatch.at))
        return ODD;
    int32_t topic = span_topic(s, found->topic);
    if (topic < 0)
        return ODD;
    topic_item *share = (topic_item *)s->topics.items.data + topic;
    uint32_t transaction = found->sys_flag & TRANSACTION_ROLLBACK_TYPE;
    if (transaction != TRANSACTION_ROLLBACK_TYPE
            && span_keys(s, &properties, share->head, offset, found->store_time) != GOOD) {
        s->keys.count = keys_before;
        return ODD;
    }
    int32_t run = -1;
    if (transaction != TRANSACTION_ROLLBACK_TYPE && transaction != TRANSACTION_PREPARED_TYPE) {
        run = span_run(s, found, topic);
        if (run < 0) {
            s->no_memory = 1;
            return ODD;
        }
    }
    record_row row = {offset, found->queue_offset, tags_code, found->store_time, found->size, found->queue_id, topic,
                      signed32(found->sys_flag)};
    memcpy(s->records + s->count * (int64_t)sizeof row, &row, sizeof row);
    s->run_of[s->count] = run;
    share->count++;
    share->size += found->size;
    return GOOD;
}

static void span_scan(span *s)
{
    record found;
    s->position = s->start;
    s->stop = END;
    while (s->position < s->end) {
        if (s->count >= s->limit || (int64_t)s->keys.count >= s->limit * KEYS_PER_RECORD) {
            s->stop = LIMIT;
            return;
        }
        s->stop = look(s->data + s->position, s->end - s->position, s->check_crc, &found);
        if (s->stop == GOOD) {
            s->stop = span_add(s, &found);
            if (s->stop == ODD)
                found.size = 0;
        }
        if (s->stop != GOOD) {
            s->size = found.size;
            return;
        }
        s->stop = END;
        s->position += found.size;
        s->count++;
    }
}

/* Number the units run by run. Return how many there are. */
static int64_t span_number_units(span *s)
{
    run_row *runs = (run_row *)s->runs.data;
    int32_t first = 0;
    for (size_t run = 0; run < s->runs.count; run++) {
        runs[run].first_unit = first;
        first += runs[run].count;
        runs[run].count = 0; /* counted again while the units are written */
    }
    return first;
}

static void span_write_units(span *s, uint8_t *units)
{
    run_row *runs = (run_row *)s->runs.data;
    for (int64_t number = 0; number < s->count; number++) {
        if (s->run_of[number] < 0)
            continue;
        record_row row;
        memcpy(&row, s->records + number * (int64_t)sizeof row, sizeof row);
        run_row *run = runs + s->run_of[number];
        uint8_t *unit = units + ((int64_t)run->first_unit + run->count++) * UNIT_SIZE;
        put64(unit, row.offset);
        put32(unit + 8, (uint32_t)row.size);
        put64(unit + 12, row.tags_code);
    }
}

/* -- Python -- */

static int check_span(const Py_buffer *view, Py_ssize_t start, Py_ssize_t end)
{
    if (0 <= start && start <= end && end <= view->len)
        return 1;
    PyErr_Format(PyExc_ValueError, "bytes %zd to %zd of %zd", start, end, view->len);
    return 0;
}

/* This many bytes are walked within 0.2 ms: less than it takes to get the GIL back from threads that compute. */
#define MAX_WITH_GIL (2 << 20)

static PyObject *bulk_walk(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end;
    long long file_from_offset;
    int keeps_gil;
    span s = {0};
    if (!PyArg_ParseTuple(args, "y*nnpLp", &view, &start, &end, &s.check_crc, &file_from_offset, &keeps_gil))
        return NULL;
    PyObject *result = NULL;
    if (file_from_offset > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "offset out of range");
    } else if (check_span(&view, start, end)) {
        s.data = view.buf, s.start = start, s.end = end, s.file_from_offset = file_from_offset;
        if (keeps_gil && end - start <= MAX_WITH_GIL) {
            span_walk(&s);
        } else {
            Py_BEGIN_ALLOW_THREADS
            span_walk(&s);
            Py_END_ALLOW_THREADS
        }
        result = Py_BuildValue("LLii", (long long)s.count, (long long)s.position, s.stop, (int)s.size);
    }
    PyBuffer_Release(&view);
    return result;
}

/* Return the delays as numbers, NULL with an exception set. Set `count` to -1 for None. */
static int64_t *delays_of(PyObject *delays, int64_t *count)
{
    *count = -1;
    PyObject *items = delays == Py_None ? PyTuple_New(0) : PySequence_Tuple(delays);
    if (!items)
        return NULL;
    Py_ssize_t size = PyTuple_GET_SIZE(items);
    int64_t *numbers = PyMem_Malloc(((size_t)size + 1) * sizeof *numbers);
    if (!numbers)
        PyErr_NoMemory();
    for (Py_ssize_t at = 0; numbers && at < size; at++) {
        numbers[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(items, at));
        if (numbers[at] == -1 && PyErr_Occurred()) {
            PyMem_Free(numbers);
            numbers = NULL;
        }
    }
    Py_DECREF(items);
    if (delays != Py_None)
        *count = size;
    return numbers;
}

static PyObject *topics_of(const span *s)
{
    const topic_item *items = (const topic_item *)s->topics.items.data;
    Py_ssize_t size = 0;
    /* The last topic has no record if its only record was left to the single-record path. */
    while (size < (Py_ssize_t)s->topics.items.count && items[size].count > 0)
        size++;
    PyObject *topics = PyList_New(size);
    for (Py_ssize_t at = 0; topics && at < size; at++) {
        PyObject *topic = Py_BuildValue("(s#LL)", (const char *)items[at].name, (Py_ssize_t)items[at].length,
                                        (long long)items[at].count, (long long)items[at].size);
        if (!topic)
            Py_CLEAR(topics);
        else
            PyList_SET_ITEM(topics, at, topic);
    }
    return topics;
}

static PyObject *rows_of(const vector *rows)
{
    return PyBytes_FromStringAndSize(rows->data, (Py_ssize_t)(rows->count * rows->width));
}

/* Scan, and build the result. `records` are the bytes for the rows; the reference to them passes to the result. */
static PyObject *scan_result(span *s, PyObject *records)
{
    PyObject *units = NULL, *topics = NULL, *runs = NULL, *keys = NULL;
    int64_t unit_count = 0;
    s->records = (uint8_t *)PyBytes_AS_STRING(records);
    Py_BEGIN_ALLOW_THREADS
    span_scan(s);
    unit_count = span_number_units(s);
    Py_END_ALLOW_THREADS
    if (s->no_memory)
        PyErr_NoMemory();
    else
        units = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(unit_count * UNIT_SIZE));
    if (units) {
        uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(units);
        Py_BEGIN_ALLOW_THREADS
        span_write_units(s, bytes);
        Py_END_ALLOW_THREADS
        topics = topics_of(s);
        runs = rows_of(&s->runs);
        keys = rows_of(&s->keys);
    }
    if (topics && runs && keys) {
        if (_PyBytes_Resize(&records, (Py_ssize_t)(s->count * (int64_t)sizeof(record_row))) == 0)
            return Py_BuildValue("LLiiNNNNN", (long long)s->count, (long long)s->position, s->stop, (int)s->size,
                                 topics, records, runs, units, keys);
    }
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(topics);
    Py_XDECREF(runs);
    Py_XDECREF(keys);
    return NULL;
}

static PyObject *bulk_scan(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end;
    long long file_from_offset, limit;
    PyObject *delays, *result = NULL, *records = NULL;
    int64_t *delay_ms = NULL;
    span s = {0};
    if (!PyArg_ParseTuple(args, "y*nnLpOpL", &view, &start, &end, &file_from_offset, &s.check_crc, &delays,
                          &s.multi_dispatch, &limit))
        return NULL;
    if (!check_span(&view, start, end))
        goto done;
    if (limit < 1 || limit > MAX_LIMIT || file_from_offset < 0 || file_from_offset > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "limit or offset out of range");
        goto done;
    }
    delay_ms = delays_of(delays, &s.delay_count);
    if (!delay_ms)
        goto done;
    s.data = view.buf, s.start = start, s.end = end, s.file_from_offset = file_from_offset, s.limit = limit;
    s.delays = delay_ms, s.last_topic = -1;
    s.runs.width = sizeof(run_row), s.keys.width = sizeof(key_row);
    s.topics.items.width = sizeof(topic_item), s.queues.items.width = sizeof(queue_item);
    int64_t room = (end - start) / MIN_RECORD_LENGTH + 1;
    if (room > limit)
        room = limit;
    s.run_of = PyMem_RawMalloc((size_t)room * sizeof *s.run_of);
    records = s.run_of ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(room * (int64_t)sizeof(record_row)))
                       : PyErr_NoMemory();
    if (records)
        result = scan_result(&s, records);
done:
    PyMem_RawFree(s.run_of);
    PyMem_RawFree(s.runs.data);
    PyMem_RawFree(s.keys.data);
    PyMem_RawFree(s.topics.items.data);
    PyMem_RawFree(s.topics.slots);
    PyMem_RawFree(s.queues.items.data);
    PyMem_RawFree(s.queues.slots);
    PyMem_Free(delay_ms);
    PyBuffer_Release(&view);
    return result;
}

/* -- the index file -- */

typedef struct {
    int64_t begin_time, end_time, begin_offset, end_offset;
    int32_t slots_in_use, next; /* hashSlotCount, indexCount */
} counters;

static int32_t seconds_between(int64_t begin, int64_t time)
{
    if (begin <= 0 || time <= begin)
        return 0;
    int64_t seconds = (time - begin) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* Add keys to an index file. `file` has its header, its slots, then its entries from number `first_entry` on. */
static void add_keys(uint8_t *file, int32_t slot_count, int32_t first_entry, counters *c, const uint8_t *keys,
                     int64_t first, int64_t stop)
{
    uint8_t *slots = file + INDEX_HEADER, *entries = slots + (int64_t)slot_count * 4;
    key_row key;
    for (int64_t at = first; at < stop; at++) {
        if (at + 16 < stop) {
            memcpy(&key, keys + (at + 16) * (int64_t)sizeof key, sizeof key);
            PREFETCH(slots + (int64_t)((key.hash & INT32_MAX) % slot_count) * 4);
        }
        memcpy(&key, keys + at * (int64_t)sizeof key, sizeof key);
        int32_t hash = key.hash & INT32_MAX;
        uint8_t *slot = slots + (int64_t)(hash % slot_count) * 4, *entry = entries + (int64_t)(c->next - first_entry) * 20;
        int32_t previous = int32_at(slot);
        if (previous <= 0 || previous >= c->next) {
            previous = 0;
            c->slots_in_use++;
        }
        put32(entry, (uint32_t)hash);
        put64(entry + 4, key.offset);
        put32(entry + 12, (uint32_t)seconds_between(c->begin_time, key.store_time));
        put32(entry + 16, (uint32_t)previous);
        put32(slot, (uint32_t)c->next);
        if (c->next <= 1)
            c->begin_offset = key.offset, c->begin_time = key.store_time;
        c->end_offset = key.offset, c->end_time = key.store_time;
        c->next++;
    }
    if (stop > first) {
        put64(file, c->begin_time);
        put64(file + 8, c->end_time);
        put64(file + 16, c->begin_offset);
        put64(file + 24, c->end_offset);
        put32(file + 32, (uint32_t)c->slots_in_use);
        put32(file + 36, (uint32_t)c->next);
    }
}

static PyObject *bulk_put_keys(PyObject *module, PyObject *args)
{
    Py_buffer file, keys;
    int slot_count, entry_count, slots_in_use, next, first_entry;
    long long begin_time, end_time, begin_offset, end_offset;
    Py_ssize_t first, last;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "w*ii(LLLLii)y*nni", &file, &slot_count, &entry_count, &begin_time, &end_time,
                          &begin_offset, &end_offset, &slots_in_use, &next, &keys, &first, &last, &first_entry))
        return NULL;
    counters c = {begin_time, end_time, begin_offset, end_offset, slots_in_use, next};
    if (slot_count < 1 || entry_count < 0 || first_entry < 0
            || INDEX_HEADER + (int64_t)slot_count * 4 + ((int64_t)entry_count - first_entry) * 20 > file.len) {
        PyErr_Format(PyExc_ValueError, "%d slots and %d entries in %zd bytes", slot_count, entry_count, file.len);
    } else if (first < 0 || first > last || last > keys.len / (Py_ssize_t)sizeof(key_row)) {
        PyErr_Format(PyExc_ValueError, "keys %zd to %zd of %zd bytes", first, last, keys.len);
    } else if (next < 1 || next < first_entry || slots_in_use < 0 || slots_in_use > INT32_MAX - (int64_t)(last - first)) {
        PyErr_Format(PyExc_ValueError, "%d slots in use, next entry %d", slots_in_use, next);
    } else {
        int64_t room = next < entry_count ? (int64_t)entry_count - next : 0;
        int64_t stop = last - first < room ? last : first + room;
        Py_BEGIN_ALLOW_THREADS
        add_keys(file.buf, slot_count, first_entry, &c, keys.buf, first, stop);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("LLLLLii", (long long)stop, (long long)c.begin_time, (long long)c.end_time,
                               (long long)c.begin_offset, (long long)c.end_offset, (int)c.slots_in_use, (int)c.next);
    }
    PyBuffer_Release(&file);
    PyBuffer_Release(&keys);
    return result;
}

static PyMethodDef methods[] = {
    {"walk", bulk_walk, METH_VARARGS, "See rmqha.store.bulk.bulk.walk."},
    {"scan", bulk_scan, METH_VARARGS, "See rmqha.store.bulk.bulk.scan."},
    {"put_keys", bulk_put_keys, METH_VARARGS, "See rmqha.store.bulk.bulk.put_keys."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_bulk", "The bulk kernel, compiled.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__bulk(void)
{
    make_crc_tables();
    return module_of_this_version(&module_def);
}
